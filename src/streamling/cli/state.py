"""`streamling state list|show|reset`: what the state backend holds for this application."""

from __future__ import annotations

import argparse
import json
import sys

from streamling.cli.failure import rendered
from streamling.cli.options import add_common, settings_of
from streamling.engine.state import StateStore, open_state, reset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = commands.add_parser("list", help="one line per key")
    show = commands.add_parser("show", help="the whole value of keys")
    show.add_argument("keys", nargs="+", metavar="KEY")
    clear = commands.add_parser("reset", help="forget all positions of this application; the next run starts afresh")
    clear.add_argument("--yes", action="store_true", help="do not ask")
    for command in (listing, show, clear):
        command.add_argument("--application", metavar="ID", help="application id (default: from the settings)")
        add_common(command)


def execute(options: argparse.Namespace) -> int:
    try:
        settings = settings_of(options, level="warn").settings
        if options.application:
            settings = settings.model_copy(update={"application_id": options.application})
        store = open_state(settings)
        try:
            match options.action:
                case "list":
                    return _list(store)
                case "show":
                    return _show(store, options.keys)
                case _:
                    return _reset(store, settings.application_id, asked=options.yes)
        finally:
            store.close()
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        print(rendered(error, with_trace=options.traceback), file=sys.stderr)
        return 1


def _list(store: StateStore) -> int:
    for key, value in store.items().items():
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
    count = len(store.items())
    if not asked:
        if not sys.stdin.isatty():
            print("reset needs --yes when nobody can be asked", file=sys.stderr)
            return 2
        if input(f"forget {count} keys of {application!r}? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    reset(store)
    print(f"forgot {count} keys of {application!r}")
    return 0
