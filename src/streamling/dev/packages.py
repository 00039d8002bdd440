"""Programs of other projects, downloaded once per user and checked against pinned hashes.

Ivy, which is part of Spark, downloads them: it knows the artifact repositories, so no address is needed here.
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

from streamling.dev.lock import file_lock
from streamling.dev.observer import Observer
from streamling.engine.process.java import find_java
from streamling.engine.process.jvm import spark_jars
from streamling.errors import PACKAGE_CHANGED, PACKAGE_NOT_FETCHED, PermanentError, TransientError
from streamling.user_cache import cache_directory

Fetch = Callable[[Path, IO[bytes]], Path]
"""Downloads into a directory, which may contain files of an interrupted attempt, and returns the path in it to keep.

The second argument is the lock that its child processes must inherit."""

_POLL_SECONDS = 0.2
# The largest package has 170 MB; a connection that needs longer than this for it is too slow to be useful.
_FETCH_SECONDS = 1800
_IVY_HINT = (
    "check the network. To use a proxy, set JAVA_TOOL_OPTIONS: -Dhttps.proxyHost=... -Dhttps.proxyPort=... "
    "The next attempt continues with what was downloaded"
)
# An artifact without a module descriptor has only the default configuration.
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
    """A file of an artifact repository, with the hash of its content."""

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


def pinned_artifacts(name: str) -> tuple[Artifact, ...]:
    """The artifacts listed in NAME.pins next to this module."""
    artifacts = []
    for line in Path(__file__).with_name(f"{name}.pins").read_text().splitlines():
        if line and not line.startswith("#"):
            sha256, size, *coordinates = line.split()
            artifacts.append(Artifact(sha256, int(size), *coordinates))
    return tuple(artifacts)


def install(name: str, fetch: Fetch, observer: Observer, cache: Path | None = None) -> Path:
    """The result of `fetch`, from the cache of the user or from this one; downloaded only once.

    An incomplete result never has the final name.
    """
    servers = (cache or cache_directory()) / "servers"
    home = servers / name
    if home.exists():
        return home
    partial = servers / f".{name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    with file_lock(servers / f".{name}.lock", observer, f"another process to download {name}") as lock:
        if not home.exists():
            partial.mkdir(exist_ok=True)
            fetch(partial, lock).rename(home)
            shutil.rmtree(partial, ignore_errors=True)
    return home


@dataclass(frozen=True, slots=True)
class Download:
    """One run of a program that downloads into a directory. The program inherits the lock of the directory."""

    what: str
    """The name for users."""
    command: Sequence[str]
    total: int
    """Bytes to expect."""
    directory: Path
    lock: IO[bytes]
    hint: str
    """For the error, if it fails."""
    files: Sequence[Path] = ()
    """Files that must exist afterwards."""

    def run(self, observer: Observer) -> None:
        """Run the program and report its progress. Raises TransientError PACKAGE_NOT_FETCHED."""
        parts = self.directory / "cache"
        parts.mkdir(exist_ok=True)
        with (self.directory / "log").open("wb") as log:
            process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[self.lock.fileno()],
                env={**os.environ, "TMPDIR": str(parts.absolute())},
            )
        try:
            self._watch(process, parts, observer)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0 or not all(file.exists() for file in self.files):
            raise self._failure((self.directory / "log").read_text(errors="replace"))

    def _watch(self, process: subprocess.Popen[bytes], parts: Path, observer: Observer) -> None:
        deadline = time.monotonic() + _FETCH_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            observer.progress(self.what, min(_bytes_in(parts), self.total - 1), self.total)
            time.sleep(_POLL_SECONDS)

    def _failure(self, log: str) -> TransientError:
        # Ivy prints frames of colons around its messages.
        lines = [text for line in log.splitlines() if any(map(str.isalpha, text := line.strip(": \t")))]
        return TransientError(
            PACKAGE_NOT_FETCHED,
            f"{self.what} could not be downloaded",
            quote=lines[-1] if lines else "the download program ended without a message",
            hint=self.hint,
        )


def fetch_artifacts(
    what: str, artifacts: Sequence[Artifact], directory: Path, lock: IO[bytes], observer: Observer
) -> list[Path]:
    """Download the artifacts below `directory`, and check their content. Returns the files."""
    (directory / "ivy.xml").write_text(_module(artifacts))
    target = directory / "files"
    pattern = str(target / "[artifact]-[revision](-[classifier]).[ext]")
    # The Java of this machine is preferred: it has the certificates that the machine trusts.
    command = [str(find_java()), "-jar", str(_ivy()), "-ivy", "ivy.xml", "-cache", "cache", "-retrieve", pattern]
    files = [target / artifact.file_name for artifact in artifacts]
    total = sum(artifact.size for artifact in artifacts)
    Download(what, [*command, "-warn"], total, directory, lock, _IVY_HINT, files).run(observer)
    for file, artifact in zip(files, artifacts, strict=True):
        check_hash(file, artifact.sha256, spoiled=directory)
    observer.progress(what, total, total)
    return files


def check_hash(file: Path, sha256: str, *, spoiled: Path) -> None:
    """Raises PermanentError PACKAGE_CHANGED, after removing `spoiled`: the next attempt starts again."""
    with file.open("rb") as content:
        actual = hashlib.file_digest(content, "sha256").hexdigest()
    if actual != sha256:
        shutil.rmtree(spoiled, ignore_errors=True)
        raise PermanentError(
            PACKAGE_CHANGED,
            f"{file.name} was downloaded, but has the wrong content: its sha256 is {actual}, not {sha256}",
            hint="try again; if that does not help, something between you and the repository changes files",
        )


def _bytes_in(parts: Path) -> int:
    """Bytes of all files, incomplete ones included, without the small ones that describe artifacts."""
    done = 0
    for file in parts.rglob("*"):
        with suppress(FileNotFoundError):  # renamed since it was listed
            if file.is_file() and file.suffix not in (".xml", ".properties"):
                done += file.stat().st_size
    return done


def _module(artifacts: Sequence[Artifact]) -> str:
    entries = (
        _DEPENDENCY.format(a, classifier=f' m:classifier="{a.classifier}"' if a.classifier else "") for a in artifacts
    )
    return _MODULE.format("".join(entries))


def _ivy() -> Path:
    jars = [jar for jar in spark_jars() if jar.name.startswith("ivy-")]
    if not jars:
        raise PermanentError(PACKAGE_NOT_FETCHED, "the installed pyspark has no Ivy", hint="install pyspark again")
    return jars[0]
