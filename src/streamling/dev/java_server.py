"""Servers that run on Java, and how their programs are downloaded."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, ClassVar

from streamling.dev.observer import Observer
from streamling.dev.packages import fetch_artifacts, install, pinned_artifacts
from streamling.dev.server import DevServer
from streamling.engine.process.java import find_java_for


class JavaServer(DevServer):
    """Its files are those that NAME.pins lists."""

    title: ClassVar[str]
    """Product and version, for errors about a missing Java."""
    product: ClassVar[str]
    """The name of its directory in the cache, without the version."""
    oldest_java: ClassVar[int]

    def check(self) -> None:
        self.java()

    def java(self) -> Path:
        return find_java_for(self.title, self.oldest_java)

    def home(self, observer: Observer) -> Path:
        def fetch(directory: Path, lock: IO[bytes]) -> Path:
            what = f"{self.name} {self.version}"
            return self.unpack(fetch_artifacts(what, pinned_artifacts(self.name), directory, lock, observer))

        return install(f"{self.product}-{self.version}", fetch, observer)

    @abstractmethod
    def unpack(self, files: Sequence[Path]) -> Path:
        """Make the program from the downloaded files, and return its directory, which may be the one they are in."""
