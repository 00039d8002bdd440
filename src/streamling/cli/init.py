"""`streamling init [FILE]`: writes a pipeline to start from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.completion import pipeline_files, sink_kinds, source_kinds, transform_kinds
from streamling.cli.failure import attempt
from streamling.cli.options import Common, Config, Traceback, settings_of

if TYPE_CHECKING:
    from streamling.connector.kinds import Kind
    from streamling.spec.pipeline import Role

EXAMPLES = """
streamling init                         a small pipeline that runs
streamling init orders.yaml --source kafka --transform sql --sink postgres
streamling init - --sink file | less    show the fields of a kind
streamling init --list                  list all kinds
"""
_STANDARD_OUTPUT = "-"
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def init(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="File to write; - for standard output.", autocompletion=pipeline_files),
    ] = "pipeline.yaml",
    source: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of the source.", autocompletion=source_kinds, show_default=False),
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Kind of a transform; may be repeated.",
            autocompletion=transform_kinds,
            show_default=False,
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Kind of a sink; may be repeated.", autocompletion=sink_kinds, show_default=False
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the kinds of nodes; write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    config: Config = None,
    traceback: Traceback = False,
) -> int:
    """Write a pipeline to start from, with every field explained."""
    common = Common(config, traceback=traceback)

    def write() -> int:
        if list_:
            from streamling.cli.plugin import listing

            print("\n".join(listing(common)))
            return 0
        return _write_skeleton(file, common, _Choice(source, transform or [], sink or []), force=force)

    return attempt(write, with_trace=traceback)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The names of the kinds that the user has asked for."""

    source: str | None
    transforms: list[str]
    sinks: list[str]

    def kinds(self) -> list[Kind]:
        """The kinds, with a generator and a print sink for what is missing."""
        from streamling.spec.pipeline import Role

        is_empty = not (self.source or self.transforms or self.sinks)
        transforms = ["sql"] if is_empty else self.transforms
        names = [(Role.SOURCE, self.source or "generator"), *((Role.TRANSFORM, name) for name in transforms)]
        names += [(Role.SINK, name) for name in self.sinks or ["print"]]
        return [_kind(role, name) for role, name in names]


def _write_skeleton(file: str, common: Common, choice: _Choice, *, force: bool) -> int:
    from streamling.cli.skeleton import limitation, skeleton
    from streamling.plugin.loading import load_plugins

    load_plugins(settings_of(common, level="warn").settings)
    kinds = choice.kinds()
    text = skeleton(kinds, file)
    if file == _STANDARD_OUTPUT:
        sys.stdout.write(text)
        return 0
    _write(Path(file), text, force=force)
    limits = limitation(kinds)
    then = f"; {limits}" if limits else f", run it with `streamling run {file}`"
    print(f"wrote {file}; check it with `streamling validate {file}`{then}", file=sys.stderr)
    return 0


def _kind(role: Role, name: str) -> Kind:
    from streamling.connector import kinds
    from streamling.errors import KIND_NOT_AVAILABLE, UserError
    from streamling.spec.faults import did_you_mean

    known = [kind.name for kind in kinds.all_kinds() if kind.role is role]
    kind = next((kind for kind in kinds.all_kinds() if (kind.role, kind.name) == (role, name)), None)
    if kind is None:
        message = f"there is no {role.value} type '{name}'; known types: {', '.join(known)}"
        raise UserError(KIND_NOT_AVAILABLE, message, hint=did_you_mean(name, known))
    return kind


def _write(path: Path, text: str, *, force: bool) -> None:
    from streamling.errors import FILE_EXISTS, PIPELINE_FILE, UserError

    try:
        # The file system checks for the file while it opens it, so that no other process can create it in between.
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        hint = "replace it with --force, or choose another file"
        raise UserError(FILE_EXISTS, f"'{path}' exists already", hint=hint) from None
    except OSError as error:
        raise UserError(PIPELINE_FILE, f"'{path}' cannot be written: {error.strerror}", cause=error) from error
