"""The program in typer: finds a command by its name, loads it when it is used, and ends its help with examples."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from streamling import __version__
from streamling.cli.commands import COMMANDS, with_command
from streamling.cli.terminal import Fragment, has_colours, print_styled

PROGRAM = "streamling"
_EXAMPLES = """
streamling init pipeline.yaml         write a small pipeline that runs
streamling run pipeline.yaml          run it until its input ends or Ctrl-C
streamling pipeline.yaml --validate   check it and print a JSON report
streamling plan pipeline.yaml         show its graph, columns and guarantees
streamling preview pipeline.yaml      show the first rows of every node
streamling explain SQL_TYPES          explain an error code
streamling state list                 list the stored positions of sources
streamling dlq list                   list rows that could not be delivered
streamling dev up                     start Kafka, a registry and Postgres
streamling doctor                     show what is installed or missing
"""
_HEADING = re.compile(r"^(Usage|Arguments|Options|Commands|Examples):", re.MULTILINE)
# The type of plain text is not worth showing.
TEXT_TYPE = re.compile(r" <(?:str|list\[str\])>")
_NAME = re.compile(r"^  (-[-\w, ]*\w|\w+)(?=  )", re.MULTILINE)


class _HelpFormat:
    """Mix-in: help that ends with examples, with colours on terminals."""

    epilog: str | None
    get_params: Callable[[Any], list[Any]]

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)  # type: ignore[misc]
        if not has_colours(sys.stdout):
            return text
        text = _NAME.sub(lambda match: "  " + typer.style(match[1], fg="cyan"), text)
        return _HEADING.sub(lambda match: typer.style(match[0], bold=True), text)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title in ("Arguments", "Options"):
            parameters = [p for p in self.get_params(ctx) if f"{p.param_type_name.capitalize()}s" == title]
            records = filter(None, (p.get_help_record(ctx) for p in parameters))
            rows = [(TEXT_TYPE.sub("", name), text) for name, text in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.epilog.strip().splitlines()))


class Command(_HelpFormat, TyperCommand):
    pass


class CommandGroup(_HelpFormat, TyperGroup):
    pass


class _Program(CommandGroup):
    """Loads a command from the module of its name. A word that is not a command is the file of a run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, with_command(args))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        file = load_command("run").params[0]
        return [*super().shell_complete(ctx, incomplete), *file.shell_complete(ctx, incomplete)]


def new_app() -> typer.Typer:
    """The app of one command; each command module has one."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name. Returns the exit code."""
    program = get_command(_program)
    try:
        code = program.main(
            with_command(arguments), prog_name=PROGRAM, standalone_mode=False, color=has_colours(sys.stdout)
        )
    except typer.TyperException as error:
        print_styled(sys.stderr, _usage_error(error, arguments))
        return error.exit_code
    return code if isinstance(code, int) else 0


def _usage_error(error: typer.TyperException, arguments: Sequence[str]) -> Iterator[list[Fragment]]:
    """The error, a suggestion, and the usage of the command."""
    # The whole message of an option names it; that of an unknown one would also repeat the suggestion.
    message = error.format_message() if isinstance(error, typer.BadParameter) else error.message
    message = (message or error.format_message()).replace("Value error, ", "").replace(": Input ", ": input ")
    yield [("error:", "bold red"), (f" {message[:1].lower()}{message[1:].rstrip('.')}", "")]
    command, first = with_command(arguments)[0], arguments[0] if arguments else ""
    suggestion = " or ".join(getattr(error, "possibilities", None) or ())
    if not suggestion and first and not first.startswith("-") and first not in COMMANDS:
        from streamling.spec.faults import nearest

        near = nearest(first, COMMANDS)
        suggestion = f"the command '{near}'" if near else ""
    if suggestion:
        yield [(f"  hint: did you mean {suggestion}?", "cyan")]
    context: Any = getattr(error, "ctx", None)
    if context is None and command in COMMANDS:
        context = load_command(command).make_context(f"{PROGRAM} {command}", [], resilient_parsing=True)
    if context is not None:
        usage = context.get_usage()
        yield [(usage[:1].lower() + usage[1:], "")]
        yield [(f"see `{context.command_path} --help`", "dim")]


def load_command(name: str) -> Any:
    """A typer command, or a group of commands, from the module of its name."""
    command = get_command(import_module(f"streamling.cli.{name}").app)
    command.name = name
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


_program = typer.Typer(
    cls=_Program,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_program.callback(epilog=_EXAMPLES)
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run data pipelines written in YAML on Spark. `streamling FILE` is `streamling run FILE`."""
