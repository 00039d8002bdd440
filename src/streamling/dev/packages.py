"""Programs of other projects, fetched once per user and checked against hashes that are pinned here.

Ivy, which Spark brings along, fetches them: it knows where artifacts are, so no place is named.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamling.dev.lock import locked
from streamling.dev.onlooker import Onlooker
from streamling.engine.process.archive import cache_directory
from streamling.engine.process.java import find_java
from streamling.engine.process.jvm import spark_jars
from streamling.errors import PACKAGE_CHANGED, PACKAGE_NOT_FETCHED, PermanentError, TransientError

Fetch = Callable[[Path, IO[bytes]], Path]
"""Gets a directory, in which an attempt that was cut off may have left something, and the lock that its children hold;
gives what is to be kept of the directory."""

_POLL_SECONDS = 0.2
# The largest package has 170 MB; a line that needs longer than this for it is no line.
_FETCH_SECONDS = 1800
_IVY_HINT = (
    "check the network. A proxy is named in JAVA_TOOL_OPTIONS: -Dhttps.proxyHost=... -Dhttps.proxyPort=... "
    "What has arrived is kept"
)
# A file that nothing describes has no other configuration than the default one.
_DEPENDENCY = """
    <dependency org="{0.organisation}" name="{0.name}" rev="{0.revision}" transitive="false"
                conf="default->master(default)">
      <artifact name="{0.name}" type="{0.extension}" ext="{0.extension}"{classifier}/>
    </dependency>"""
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="streamling" module="dev"/>
  <dependencies>{}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of an artifact repository, and what must be in it."""

    sha256: str
    size: int
    organisation: str
    name: str
    revision: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.extension}"


def pinned(name: str) -> tuple[Artifact, ...]:
    """The artifacts listed in the file of this name beside this module."""
    found = []
    for line in Path(__file__).with_name(f"{name}.pins").read_text().splitlines():
        if line and not line.startswith("#"):
            sha256, size, *coordinates = line.split()
            found.append(Artifact(sha256, int(size), *coordinates))
    return tuple(found)


def installed(name: str, fetch: Fetch, onlooker: Onlooker, cache: Path | None = None) -> Path:
    """What `fetch` gives, made once per user or in this cache. Nothing half-made is ever found under its final name."""
    servers = (cache or cache_directory()) / "servers"
    home = servers / name
    if home.exists():
        return home
    partial = servers / f".{name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    with locked(servers / f".{name}.lock", onlooker, f"another process that fetches {name}") as lock:
        if not home.exists():
            partial.mkdir(exist_ok=True)
            fetch(partial, lock).rename(home)
            shutil.rmtree(partial, ignore_errors=True)
    return home


def fetched(
    what: str, artifacts: Sequence[Artifact], directory: Path, lock: IO[bytes], onlooker: Onlooker
) -> list[Path]:
    """The files of the artifacts, below `directory`, with the pinned content."""
    (directory / "ivy.xml").write_text(_module(artifacts))
    target = directory / "files"
    pattern = str(target / "[artifact]-[revision](-[classifier]).[ext]")
    # The machine's own Java comes first: it trusts the certificates that the machine trusts.
    command = [str(find_java()), "-jar", str(_ivy()), "-ivy", "ivy.xml", "-cache", "cache", "-retrieve", pattern]
    files = [target / artifact.file_name for artifact in artifacts]
    downloaded(what, [*command, "-warn"], _total(artifacts), directory, lock, onlooker, hint=_IVY_HINT, files=files)
    for file, artifact in zip(files, artifacts, strict=True):
        check_hash(file, artifact.sha256, spoiled=directory)
    onlooker.fetching(what, _total(artifacts), _total(artifacts))
    return files


def check_hash(file: Path, sha256: str, *, spoiled: Path) -> None:
    """Raises PermanentError PACKAGE_CHANGED, after removing `spoiled`: the next attempt starts afresh."""
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        shutil.rmtree(spoiled, ignore_errors=True)
        raise PermanentError(
            PACKAGE_CHANGED,
            f"{file.name} was fetched, but is not the file it should be: its sha256 is {found}, not {sha256}",
            hint="fetch it again; if that does not help, something between you and the repository changes files",
        )


def downloaded(
    what: str,
    command: Sequence[str],
    total: int,
    directory: Path,
    lock: IO[bytes],
    onlooker: Onlooker,
    *,
    hint: str,
    files: Sequence[Path] = (),
) -> None:
    """Run a program that fetches something into a directory, and show how far it is.

    Raises TransientError PACKAGE_NOT_FETCHED if it fails, or if one of `files` is not there afterwards.
    """
    parts = directory / "cache"
    parts.mkdir(exist_ok=True)
    with (directory / "log").open("wb") as log:
        fetching = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[lock.fileno()],
            env={**os.environ, "TMPDIR": str(parts.absolute())},
        )
    try:
        _watch(fetching, what, total, parts, onlooker)
    finally:
        fetching.kill()
        fetching.wait()
    if fetching.returncode != 0 or not all(file.exists() for file in files):
        raise _not_fetched(what, (directory / "log").read_text(errors="replace"), hint)


def _watch(fetching: subprocess.Popen[bytes], what: str, total: int, parts: Path, onlooker: Onlooker) -> None:
    deadline = time.monotonic() + _FETCH_SECONDS
    while fetching.poll() is None and time.monotonic() < deadline:
        onlooker.fetching(what, min(_arrived(parts), total - 1), total)
        time.sleep(_POLL_SECONDS)


def _arrived(parts: Path) -> int:
    """Bytes of all files but the small ones that describe artifacts; parts of files included."""
    done = 0
    for file in parts.rglob("*"):
        with suppress(FileNotFoundError):  # it has got its name by now
            if file.is_file() and file.suffix not in (".xml", ".properties"):
                done += file.stat().st_size
    return done


def _total(artifacts: Sequence[Artifact]) -> int:
    return sum(artifact.size for artifact in artifacts)


def _not_fetched(what: str, log: str, hint: str) -> TransientError:
    # Ivy frames what it says.
    lines = [text for line in log.splitlines() if any(map(str.isalpha, text := line.strip(": \t")))]
    return TransientError(
        PACKAGE_NOT_FETCHED,
        f"{what} could not be fetched",
        quote=lines[-1] if lines else "the program that fetches it ended without a word",
        hint=hint,
    )


def _module(artifacts: Sequence[Artifact]) -> str:
    entries = (
        _DEPENDENCY.format(a, classifier=f' m:classifier="{a.classifier}"' if a.classifier else "") for a in artifacts
    )
    return _MODULE.format("".join(entries))


def _ivy() -> Path:
    found = [jar for jar in spark_jars() if jar.name.startswith("ivy-")]
    if not found:
        raise PermanentError(PACKAGE_NOT_FETCHED, "the installed pyspark has no Ivy", hint="install pyspark anew")
    return found[0]
