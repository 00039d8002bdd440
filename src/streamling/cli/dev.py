"""`streamling dev`: real servers on this machine for development, and messages for their topics."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, CommandGroup, new_app
from streamling.cli.completion import dev_servers
from streamling.cli.failure import attempt
from streamling.cli.messages import app as messages
from streamling.cli.options import Format, OutputFormat, Traceback
from streamling.cli.stack import DIRECTORY, INTERRUPTED, Directory, open_stack
from streamling.cli.terminal import Fragment, print_styled

if TYPE_CHECKING:
    from streamling.dev.stack import ServerStatus, Stack

_STYLES = {"running": "green", "not answering": "bold red", "stopped": "dim"}
_PORTS = range(1, 65536)
app = new_app()
app.add_typer(messages)

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SERVER", help="kafka, registry, postgres or clickhouse; by default all.", autocompletion=dev_servers
    ),
]


@app.callback(
    cls=CommandGroup,
    epilog="""
streamling dev up                         start Kafka, Postgres, ClickHouse
streamling dev env                        their settings for pipelines
streamling dev produce orders rows.jsonl  send messages to a topic
streamling dev tail orders                show messages of a topic
streamling dev down --purge               stop all, remove their data
""",
)
def dev() -> None:
    """Run real servers on this machine, and send messages to topics. Other machines cannot reach the servers."""


@app.command(
    cls=Command,
    epilog="""
streamling dev up                          all, on their usual ports if free
streamling dev up kafka --port kafka=9092  only the broker, on this port
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
    """Start servers and wait until they answer. They run until `dev down`, even if the terminal is closed."""
    names, ports = _names(servers), _ports(port or [])

    def start() -> int:
        from streamling.cli.download_bar import DownloadBar

        with DownloadBar() as bar:
            stack = open_stack(directory, bar)
            stack.up(names, ports, without_optional=not servers)
        _show(stack, None, format_)
        if format_ is Format.TEXT:
            option = "" if directory == DIRECTORY else f" --directory {shlex.quote(str(directory))}"
            print(f'\nto use them in this shell: eval "$(streamling dev env{option})"', file=sys.stderr)
        return 0

    return attempt(start, with_trace=traceback, interrupted=INTERRUPTED)


@app.command(
    cls=Command,
    epilog="""
streamling dev down              stop all; their data is kept
streamling dev down registry     stop only this one
streamling dev down --purge      also remove data and logs
""",
)
def down(
    servers: Names = None,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove topics, schemas, tables and logs.")] = False,
    directory: Directory = DIRECTORY,
    traceback: Traceback = False,
) -> int:
    """Stop the servers of this directory, and no others."""
    names = _names(servers)

    def stop() -> int:
        from streamling.cli.download_bar import DownloadBar

        with DownloadBar() as bar:
            stopped = open_stack(directory, bar).down(names, purge=purge)
        print(f"stopped {', '.join(stopped)}" if stopped else f"no server runs in {directory}")
        return 0

    return attempt(stop, with_trace=traceback, interrupted=INTERRUPTED)


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
    """Show which servers run, and where. Also prints their settings for pipelines."""
    names = _names(servers)

    def look() -> int:
        states = {status.state.value for status in _show(open_stack(directory), names, format_)}
        if servers:
            return 0 if states == {"running"} else 1
        return 0 if "running" in states and "not answering" not in states else 1

    return attempt(look, with_trace=traceback, interrupted=INTERRUPTED)


@app.command(
    cls=Command,
    epilog="""
streamling dev env                  for `eval` in the shell
streamling dev env kafka registry   only of these
streamling dev env --format json    for programs
""",
)
def env(
    servers: Names = None,
    directory: Directory = DIRECTORY,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Print the settings of the running servers as shell commands. Pipelines read these variables."""
    names = _names(servers)

    def print_variables() -> int:
        stack = open_stack(directory)
        variables = stack.variables(names)
        for name in names if servers or not variables else ():
            stack.site(name)  # raises an error if it does not run
        if format_ is Format.JSON:
            print(json.dumps(variables, indent=2))
        else:
            print("\n".join(_exports(variables)))
        return 0

    return attempt(print_variables, with_trace=traceback, interrupted=INTERRUPTED)


def _names(arguments: list[str] | None) -> list[str]:
    from streamling.dev.stack import SERVERS

    for name in arguments or ():
        _check_name(name, "SERVER")
    return [name for name in SERVERS if not arguments or name in arguments]


def _ports(arguments: list[str]) -> dict[str, int]:
    ports = {}
    for text in arguments:
        name, _, port = text.partition("=")
        if not port.isdigit() or int(port) not in _PORTS:
            raise typer.BadParameter(f"'{text}' is not of the form kafka=9092", param_hint="--port")
        ports[_check_name(name, "--port")] = int(port)
    return ports


def _check_name(name: str, argument: str) -> str:
    from streamling.dev.stack import SERVERS
    from streamling.spec.faults import did_you_mean

    if name not in SERVERS:
        hint = did_you_mean(name, tuple(SERVERS))
        message = f"there is no server '{name}'; the servers are {', '.join(SERVERS)}" + (f" ({hint})" if hint else "")
        raise typer.BadParameter(message, param_hint=argument)
    return name


def _show(stack: Stack, names: list[str] | None, format_: Format) -> list[ServerStatus]:
    statuses = stack.status(names)
    variables = stack.variables(names)
    if format_ is Format.JSON:
        print(json.dumps({"servers": [asdict(status) for status in statuses], "variables": variables}, indent=2))
    else:
        print_styled(sys.stdout, _lines(statuses, variables))
    return statuses


def _lines(statuses: list[ServerStatus], variables: dict[str, str]) -> Iterator[list[Fragment]]:
    name_width = max(len(f"{status.server} {status.version}") for status in statuses)
    state_width = max(len(status.state.value) for status in statuses)
    margin = " " * (name_width + 2)
    for status in statuses:
        name, state = f"{status.server} {status.version}", status.state.value
        facts = [status.address] if status.address else []
        if status.pid is not None and status.since is not None:
            facts.append(f"pid {status.pid}, up {_duration(time.time() - status.since)}")
        line = [(f"{name:<{name_width}}  ", "bold"), (f"{state:<{state_width}}", _STYLES[state])]
        yield line + [(f"  {fact}", "") for fact in facts]
        if status.reason:
            yield [(f"{margin}{status.reason}", "")]
        if status.log and status.pid is not None:
            yield [(f"{margin}log: {status.log}", "dim")]
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
