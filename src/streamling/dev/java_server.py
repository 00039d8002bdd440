"""Servers of other projects that run on Java: where their programs come from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, ClassVar

from streamling.dev.onlooker import Onlooker
from streamling.dev.packages import fetched, installed, pinned
from streamling.dev.server import Server
from streamling.engine.process.java import find_java_for


class JavaServer(Server):
    """Its files are pinned under its name."""

    title: ClassVar[str]
    """What it is called where Java is missing: product and version."""
    product: ClassVar[str]
    """What its program is called among those that were fetched."""
    oldest_java: ClassVar[int]

    def check(self) -> None:
        self.java()

    def java(self) -> Path:
        return find_java_for(self.title, self.oldest_java)

    def home(self, onlooker: Onlooker) -> Path:
        def fetch(directory: Path, lock: IO[bytes]) -> Path:
            return self.unpacked(fetched(f"{self.name} {self.version}", pinned(self.name), directory, lock, onlooker))

        return installed(f"{self.product}-{self.version}", fetch, onlooker)

    @abstractmethod
    def unpacked(self, files: Sequence[Path]) -> Path:
        """The directory of the program, made of the files that were fetched; it may be beside them."""
