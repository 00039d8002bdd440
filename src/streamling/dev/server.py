"""What every server of the local stack must define. Each server has its own module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import ClassVar

from streamling.dev.observer import Observer

HOST = "127.0.0.1"
"""Servers listen on this machine only."""


@dataclass(frozen=True, slots=True)
class Site:
    """The directory of one server, and its ports by name."""

    directory: Path
    ports: Mapping[str, int]


class DevServer(ABC):
    """A kind of server. It has no state: everything about a running server is in its site."""

    name: ClassVar[str]
    """Its name for users, and the name of the port that clients connect to."""
    port: ClassVar[int]
    """Its port, unless that one is taken."""
    inner_ports: ClassVar[tuple[str, ...]] = ()
    """Names of further ports, for its own use."""
    optional: ClassVar[bool] = False
    """Whether a command that starts all servers leaves it out on a machine that lacks what it needs."""
    memory: ClassVar[int]
    """Bytes of memory that it needs in all, under the load of one developer."""
    start_seconds: ClassVar[float]
    """If it has not answered after this time, its start has failed."""
    stop_seconds: ClassVar[float]
    """How long an orderly stop may take."""
    stop_signals: ClassVar[tuple[Signals, ...]] = (Signals.SIGTERM,)
    """Signals that stop it: the first one in order, later ones more abruptly."""
    kill_signals: ClassVar[tuple[Signals, ...]] = ()
    """Signals that end it like a power cut, if SIGKILL is not right."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the program that `home` returns."""

    @abstractmethod
    def check(self) -> None:
        """Raises UserError if the machine lacks what the server needs. Called before the download."""

    @abstractmethod
    def home(self, observer: Observer) -> Path:
        """The directory of its program, downloaded if necessary."""

    @abstractmethod
    def command(self, home: Path, site: Site) -> list[str]:
        """The command to run in the directory of the site. Also writes the configuration files there."""

    @abstractmethod
    def ping(self, site: Site) -> None:
        """Send it a request as a client would. Raises any exception if it does not answer."""

    def configure(self, site: Site) -> None:  # noqa: B027
        """Called at every start, once it answers. For what can only be set on a running server."""

    @abstractmethod
    def address(self, site: Site) -> str:
        """The address for clients."""

    @abstractmethod
    def variables(self, site: Site) -> dict[str, str]:
        """The settings for pipelines that use it, as environment variables."""
