"""`streamling state list|show|reset`: what the state backend holds for this application."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, Group, new_app
from streamling.cli.completion import state_keys
from streamling.cli.options import Common, Config, Quiet, Traceback, Verbose, settings_of

if TYPE_CHECKING:
    from streamling.engine.protocol.state import StateStore
    from streamling.spec.settings import Settings

Application = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Application id; that of the settings if none is given.", show_default=False),
]
app = new_app()


@app.callback(
    cls=Group,
    epilog="""
streamling state list                        where the sources stand
streamling state show numbers:generator      one position in full
streamling state reset --yes                 the next run starts afresh
""",
)
def state() -> None:
    """Look at stored positions, or forget them."""


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
        list[str], typer.Argument(metavar="KEY", help="As listed by `state list`.", autocompletion=state_keys)
    ],
    application: Application = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Show the whole value of keys."""
    return _with_store(Common(config, verbose, quiet, traceback), application, lambda store, _: _show(store, keys))


@app.command(
    cls=Command,
    epilog="""
streamling state reset          asks first
streamling state reset --yes    for scripts
""",
)
def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    application: Application = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Forget all positions of this application. The next run starts afresh."""
    common = Common(config, verbose, quiet, traceback)
    return _with_store(common, application, lambda store, settings: _reset(store, settings.application_id, asked=yes))


def _with_store(common: Common, application: str | None, action: Callable[[StateStore, Settings], int]) -> int:
    try:
        from streamling.engine.protocol.state import open_state

        settings = settings_of(common, level="warn").settings
        if application:
            settings = settings.model_copy(update={"application_id": application})
        store = open_state(settings)
        try:
            return action(store, settings)
        finally:
            store.close()
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show as show_error

        show_error(error, with_trace=common.traceback)
        return 1


def _list(store: StateStore, settings: Settings, *, quiet: bool) -> int:
    items = store.items()
    if not (items or quiet):
        from streamling.cli.places import place_of_state

        where = place_of_state(settings)
        print(f"nothing is stored for application '{settings.application_id}' ({where})", file=sys.stderr)
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
        print(f"no such key: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _reset(store: StateStore, application: str, *, asked: bool) -> int:
    from streamling.cli.quantities import number_of
    from streamling.engine.protocol.state import reset as forget

    keys = number_of(len(store.items()), "key")
    if not asked:
        if not sys.stdin.isatty():
            print("reset needs --yes when nobody can be asked", file=sys.stderr)
            return 2
        if input(f"forget {keys} of {application!r}? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    forget(store)
    print(f"forgot {keys} of {application!r}")
    return 0
