"""`streamling init [FILE]`: writes a pipeline to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.completion import pipeline_files, sink_kinds, source_kinds, transform_kinds
from streamling.cli.options import Common, Config, Traceback, settings_of

if TYPE_CHECKING:
    from streamling.connector.kinds import Kind
    from streamling.spec.pipeline import Role

EXAMPLES = """
streamling init                         a small pipeline that runs at once
streamling init orders.yaml --source kafka --transform sql --sink postgres
streamling init - --sink file | less    look at the fields of a kind
streamling init --list                  all kinds there are
"""
_STANDARD_OUTPUT = "-"
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def init(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="File to write; - is standard output.", autocompletion=pipeline_files),
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
    list_: Annotated[bool, typer.Option("--list", help="List the kinds of nodes and write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    config: Config = None,
    traceback: Traceback = False,
) -> int:
    """Write a pipeline to start from. Every field of its nodes is there, with what it means."""
    common = Common(config, traceback=traceback)
    try:
        if list_:
            from streamling.cli.plugin import listed

            print("\n".join(listed(common)))
            return 0
        from streamling.cli.skeleton import skeleton, unready
        from streamling.plugin.loading import load_plugins

        load_plugins(settings_of(common, level="warn").settings)
        kinds = _chosen(source, transform or [], sink or [])
        text = skeleton(kinds, file)
        if file == _STANDARD_OUTPUT:
            sys.stdout.write(text)
            return 0
        _write(Path(file), text, force=force)
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show

        show(error, with_trace=traceback)
        return 1
    print(
        f"wrote {file}; `streamling validate {file}` checks it"
        + (f"; {limits}" if (limits := unready(kinds)) else f", `streamling run {file}` runs it"),
        file=sys.stderr,
    )
    return 0


def _chosen(source: str | None, transforms: list[str], sinks: list[str]) -> list[Kind]:
    """The kinds asked for; a generator and a print sink stand in for what is missing."""
    from streamling.spec.pipeline import Role

    if not (source or transforms or sinks):
        transforms = ["sql"]
    wanted = [(Role.SOURCE, source or "generator"), *((Role.TRANSFORM, name) for name in transforms)]
    wanted += [(Role.SINK, name) for name in sinks or ["print"]]
    return [_kind(role, name) for role, name in wanted]


def _kind(role: Role, name: str) -> Kind:
    from streamling.connector import kinds
    from streamling.errors import KIND_NOT_AVAILABLE, UserError
    from streamling.spec.faults import did_you_mean

    known = [kind.name for kind in kinds.all_kinds() if kind.role is role]
    found = next((kind for kind in kinds.all_kinds() if (kind.role, kind.name) == (role, name)), None)
    if found is None:
        message = f"there is no {role.value} type '{name}'; known: {', '.join(known)}"
        raise UserError(KIND_NOT_AVAILABLE, message, hint=did_you_mean(name, known))
    return found


def _write(path: Path, text: str, *, force: bool) -> None:
    from streamling.errors import FILE_EXISTS, PIPELINE_FILE, UserError

    try:
        # Asked of the file system together with the writing, so that nothing can come in between.
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UserError(
            FILE_EXISTS, f"'{path}' is there already", hint="--force replaces it; or name another file"
        ) from error
    except OSError as error:
        raise UserError(PIPELINE_FILE, f"'{path}' cannot be written: {error.strerror}", cause=error) from error
