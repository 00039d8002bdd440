"""`streamling plugin list`: the kinds of nodes there are, and where each comes from."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, Group, new_app

if TYPE_CHECKING:
    from streamling.plugin.registry import Kind

app = new_app()


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.callback(cls=Group, epilog="streamling plugin list    all kinds of sources, transforms and sinks")
def plugin() -> None:
    """Look at the kinds of nodes. They are built in or come from plugins."""


@app.command(
    "list",
    cls=Command,
    epilog="""
streamling plugin list
streamling plugin list --format json | jq -r '.[].name'
""",
)
def list_(
    format_: Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")] = Format.TEXT,
) -> int:
    """List the kinds of sources, transforms and sinks."""
    if format_ is Format.JSON:
        print(json.dumps([_entry(kind) for kind in _kinds()], indent=2, ensure_ascii=False))
    else:
        print("\n".join(listed()))
    return 0


def listed() -> Iterator[str]:
    """A paragraph per role, a line per kind."""
    kinds = list(_kinds())
    width = max(len(kind.name) for kind in kinds)
    room = max(40, shutil.get_terminal_size((100, 24)).columns - width - 4)
    for role in dict.fromkeys(kind.role for kind in kinds):
        yield f"{role.section}:"
        for kind in (k for k in kinds if k.role is role):
            notes = [] if kind.runs else ["can be checked, not run yet"]
            notes += [] if kind.built_in else [f"from {kind.options.__module__}"]
            about = kind.about + (f" ({'; '.join(notes)})" if notes else "")
            yield f"  {kind.name:<{width}}  {textwrap.shorten(about, room, placeholder=' ...')}"


def _kinds() -> Iterator[Kind]:
    from streamling.plugin.registry import all_kinds

    return all_kinds()


def _entry(kind: Kind) -> dict[str, object]:
    return {
        "role": kind.role.value,
        "name": kind.name,
        "built_in": kind.built_in,
        "module": kind.options.__module__,
        "about": kind.about,
        "runs": kind.runs,
    }
