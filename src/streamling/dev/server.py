"""What every server of the local stack says of itself. Each is a module beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import ClassVar

from streamling.dev.onlooker import Onlooker

HOST = "127.0.0.1"
"""Nothing here is meant for other machines."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where one server lives: a directory of its own, and its ports by name."""

    directory: Path
    ports: Mapping[str, int]


class Server(ABC):
    """A kind of server. Holds no state: everything about one that runs is in its site."""

    name: ClassVar[str]
    """What users call it; also the name of the port that clients connect to."""
    port: ClassVar[int]
    """The port it gets if nobody else has it."""
    inner_ports: ClassVar[tuple[str, ...]] = ()
    """Ports it needs for itself."""
    memory: ClassVar[int]
    """Bytes it takes, heap and all, under the load of one developer."""
    start_seconds: ClassVar[float]
    """After this time without an answer it is never going to give one."""
    stop_seconds: ClassVar[float]
    """How long it may take to end in order."""
    stop_signals: ClassVar[tuple[Signals, ...]] = (Signals.SIGTERM,)
    """What it is asked to end by: in order first, then ever less so."""
    kill_signals: ClassVar[tuple[Signals, ...]] = ()
    """What ends it as a power cut does, if that is not SIGKILL."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version that `home` gives."""

    @abstractmethod
    def check(self) -> None:
        """Raises UserError if this machine lacks what it needs. Called before anything is fetched."""

    @abstractmethod
    def home(self, onlooker: Onlooker) -> Path:
        """Its program, fetched if need be."""

    @abstractmethod
    def command(self, home: Path, site: Site) -> list[str]:
        """What to run, in the directory of the site. Writes the files it is configured with."""

    @abstractmethod
    def ask(self, site: Site) -> None:
        """Talk to it as a client does. Raises whatever is in the way of an answer."""

    def settle(self, site: Site) -> None:  # noqa: B027
        """Called when it answers, at every start. For what can only be set on a server that runs."""

    @abstractmethod
    def address(self, site: Site) -> str:
        """Where clients find it."""

    @abstractmethod
    def variables(self, site: Site) -> dict[str, str]:
        """The settings with which pipelines use it, as environment variables."""
