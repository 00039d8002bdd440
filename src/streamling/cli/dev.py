"""`streamling dev`: real servers on this machine to develop against, and messages to try pipelines with."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, Group, new_app
from streamling.cli.completion import dev_servers
from streamling.cli.messages import app as messages
from streamling.cli.options import Traceback
from streamling.cli.stack import DIRECTORY, Directory, Format, OutputFormat, opened, reported
from streamling.cli.terminal import Fragment, print_styled

if TYPE_CHECKING:
    from streamling.dev.stack import Stack, Status

_STYLES = {"running": "green", "not answering": "bold red", "stopped": "dim"}
_PORTS = range(1, 65536)
app = new_app()
app.add_typer(messages)

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SERVER", help="kafka, registry, postgres; all if none is named.", autocompletion=dev_servers
    ),
]


@app.callback(
    cls=Group,
    epilog="""
streamling dev up                         Kafka, a schema registry, Postgres
streamling dev env                        variables for pipelines to use them
streamling dev produce orders rows.jsonl  put messages on a topic
streamling dev tail orders                look at them
streamling dev down --purge               stop all, remove what they kept
""",
)
def dev() -> None:
    """Run real servers on this machine, and put messages on topics. Nothing is reachable from other machines."""


@app.command(
    cls=Command,
    epilog="""
streamling dev up                          all, on their usual ports if free
streamling dev up kafka --port kafka=9092  the broker alone, on this port
""",
)
def up(
    servers: Names = None,
    port: Annotated[
        list[str] | None,
        typer.Option("--port", metavar="SERVER=PORT", help="Port of a server; may be repeated.", show_default=False),
    ] = None,
    directory: Directory = DIRECTORY,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Start servers and wait until they answer. They run until `dev down`, also when the terminal is closed."""
    names, ports = _names(servers), _ports(port or [])

    def start() -> int:
        from streamling.cli.fetching import Watching

        with Watching() as watching:
            stack = opened(directory, watching)
            stack.up(names, ports)
        _show(stack, None, format_)
        return 0

    return reported(start, with_trace=traceback)


@app.command(
    cls=Command,
    epilog="""
streamling dev down              data stay: the next `up` finds them
streamling dev down registry     only this one
streamling dev down --purge      remove data and logs too
""",
)
def down(
    servers: Names = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove what the servers keep: topics, schemas, tables, logs.")
    ] = False,
    directory: Directory = DIRECTORY,
    traceback: Traceback = False,
) -> int:
    """Stop servers that were started in this directory. No others are touched."""
    names = _names(servers)

    def stop() -> int:
        from streamling.cli.fetching import Watching

        with Watching() as watching:
            stopped = opened(directory, watching).down(names, purge=purge)
        print(f"stopped {', '.join(stopped)}" if stopped else f"nothing runs in {directory}")
        return 0

    return reported(stop, with_trace=traceback)


@app.command(
    cls=Command,
    epilog="""
streamling dev status                  exit code 1 if one does not answer
streamling dev status kafka            exit code 1 unless it runs and answers
streamling dev status --format json    for programs
""",
)
def status(
    servers: Names = None,
    directory: Directory = DIRECTORY,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Say what runs where, and with which variables pipelines use it."""
    names = _names(servers)

    def look() -> int:
        states = {one.state.value for one in _show(opened(directory), names, format_)}
        if servers:
            return 0 if states == {"running"} else 1
        return 0 if "running" in states and "not answering" not in states else 1

    return reported(look, with_trace=traceback)


@app.command(
    cls=Command,
    epilog="""
streamling dev env                  for eval in the shell
streamling dev env kafka registry   of these only
streamling dev env --format json    for programs
""",
)
def env(
    servers: Names = None,
    directory: Directory = DIRECTORY,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Print the settings of what runs, as commands for the shell."""
    names = _names(servers)

    def tell_variables() -> int:
        stack = opened(directory)
        variables = stack.variables(names)
        for name in names if servers or not variables else ():
            stack.site(name)  # says that it does not run
        if format_ is Format.JSON:
            print(json.dumps(variables, indent=2))
        else:
            print("\n".join(_exports(variables)))
        return 0

    return reported(tell_variables, with_trace=traceback)


def _names(given: list[str] | None) -> list[str]:
    from streamling.dev.stack import SERVERS

    for name in given or ():
        _known(name, "SERVER")
    return [name for name in SERVERS if not given or name in given]


def _ports(given: list[str]) -> dict[str, int]:
    found = {}
    for text in given:
        name, _, port = text.partition("=")
        if not port.isdigit() or int(port) not in _PORTS:
            raise typer.BadParameter(f"'{text}' is not of the form kafka=9092", param_hint="--port")
        found[_known(name, "--port")] = int(port)
    return found


def _known(name: str, argument: str) -> str:
    from streamling.dev.stack import SERVERS
    from streamling.spec.faults import did_you_mean

    if name not in SERVERS:
        hint = did_you_mean(name, tuple(SERVERS))
        message = f"there is no server '{name}'; there are {', '.join(SERVERS)}" + (f" ({hint})" if hint else "")
        raise typer.BadParameter(message, param_hint=argument)
    return name


def _show(stack: Stack, names: list[str] | None, format_: Format) -> list[Status]:
    found, variables = stack.status(names), stack.variables(names)
    if format_ is Format.JSON:
        print(json.dumps({"servers": [asdict(one) for one in found], "variables": variables}, indent=2))
    else:
        print_styled(sys.stdout, _lines(found, variables))
    return found


def _lines(found: list[Status], variables: dict[str, str]) -> Iterator[list[Fragment]]:
    name = max(len(f"{one.server} {one.version}") for one in found)
    state = max(len(one.state.value) for one in found)
    for one in found:
        program = f"{one.server} {one.version}"
        about = one.address or ""
        if one.pid is not None and one.since is not None:
            about += f"  process {one.pid}, for {_duration(time.time() - one.since)}"
        yield [(f"{program:<{name}}  ", "bold"), (f"{one.state.value:<{state}}", _STYLES[one.state.value])] + (
            [(f"  {about}", "")] if about else []
        )
        if one.reason:
            yield [(f"{'':<{name}}  {one.reason}", "")]
        if one.log and one.pid is not None:
            yield [(f"{'':<{name}}  log: {one.log}", "dim")]
    if variables:
        yield [("", "")]
        yield from ([(line, "")] for line in _exports(variables))


def _exports(variables: dict[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
