"""`streamling state list|show|reset|rewind`: the stored positions of this application."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, CommandGroup, new_app
from streamling.cli.completion import state_keys
from streamling.cli.failure import attempt
from streamling.cli.options import Common, Config, File, Quiet, Traceback, Verbose, settings_of
from streamling.cli.terminal import ask

if TYPE_CHECKING:
    from streamling.engine.protocol.state import StateStore
    from streamling.spec.settings import Settings

Application = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Application id; by default that of the settings.", show_default=False),
]
app = new_app()


@app.callback(
    cls=CommandGroup,
    epilog="""
streamling state list                        how far the sources have read
streamling state show numbers:generator      one position in full
streamling state reset --yes                 make the next run start over
streamling state rewind --to out             continue from what a target has
""",
)
def state() -> None:
    """Show, reset or rewind the stored positions of sources."""


@app.command(
    "list",
    cls=Command,
    epilog="""
streamling state list
streamling state list --application orders_v2
""",
)
def list_(
    application: Application = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """List positions, one line per key."""
    common = Common(config, verbose, quiet, traceback)
    return _with_store(common, application, lambda store, settings: _list(store, settings, quiet=quiet))


@app.command(
    cls=Command,
    epilog="""
streamling state show numbers:generator
streamling state show numbers:generator | jq .value
""",
)
def show(
    keys: Annotated[
        list[str],
        typer.Argument(metavar="KEY", help="State key, as listed by `state list`.", autocompletion=state_keys),
    ],
    application: Application = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Show the whole values of keys."""
    return _with_store(Common(config, verbose, quiet, traceback), application, lambda store, _: _show(store, keys))


@app.command(
    cls=Command,
    epilog="""
streamling state reset          asks for confirmation
streamling state reset --yes    for scripts
""",
)
def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    application: Application = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Remove all positions of this application. The next run starts over."""
    common = Common(config, verbose, quiet, traceback)
    return _with_store(common, application, lambda store, settings: _reset(store, settings.application_id, yes))


@app.command(
    cls=Command,
    epilog="""
streamling state rewind --to out                         shows what is repeated, asks for confirmation
streamling state rewind pipeline.yaml --to out --yes     for scripts
""",
)
def rewind(
    file: File = None,
    to: Annotated[str, typer.Option("--to", metavar="SINK", help="Sink whose ledger has the positions.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Continue from the positions in the target of a sink.

    For a target or a state that has lost commits: the next run repeats what was lost. Stop the pipeline first.
    """
    from streamling.cli.state_rewind import rewind_positions

    if not to:
        raise typer.BadParameter("name the sink to follow, as in --to out", param_hint="--to")
    common = Common(config, verbose, quiet, traceback)
    return attempt(lambda: rewind_positions(common, file, to, confirmed=yes), with_trace=traceback)


def _with_store(common: Common, application: str | None, action: Callable[[StateStore, Settings], int]) -> int:
    def run() -> int:
        from streamling.engine.protocol.state import open_state

        settings = settings_of(common, level="warn").settings
        if application:
            settings = settings.model_copy(update={"application_id": application})
        store = open_state(settings)
        try:
            return action(store, settings)
        finally:
            store.close()

    return attempt(run, with_trace=common.traceback)


def _list(store: StateStore, settings: Settings, *, quiet: bool) -> int:
    items = store.items()
    if not (items or quiet):
        from streamling.spec.places import place_of_state

        where = place_of_state(settings)
        print(f"no positions are stored for application '{settings.application_id}' ({where})", file=sys.stderr)
    for key, value in items.items():
        text = json.dumps(value)
        print(f"{key}\t{text if len(text) <= 120 else text[:117] + '...'}")
    return 0


def _show(store: StateStore, keys: list[str]) -> int:
    items = store.items()
    missing = [key for key in keys if key not in items]
    for key in keys:
        if key in items:
            print(json.dumps({"key": key, "value": items[key]}, indent=2))
    if missing:
        names = ", ".join(map(repr, missing))
        print(f"there is no state key {names}; `streamling state list` lists all", file=sys.stderr)
    return 1 if missing else 0


def _reset(store: StateStore, application: str, confirmed: bool) -> int:
    from streamling.cli.quantities import number_of
    from streamling.engine.protocol.state import reset as remove_positions

    keys = number_of(len(store.items()), "key")
    if not confirmed and (code := ask(f"remove {keys} of {application!r}?")):
        return code
    remove_positions(store)
    print(f"removed {keys} of {application!r}")
    return 0
