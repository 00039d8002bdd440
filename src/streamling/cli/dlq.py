"""`streamling dlq list|show|replay|discard|export`: the dead letters of a pipeline."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, CommandGroup, new_app
from streamling.cli.completion import pipeline_files
from streamling.cli.failure import attempt
from streamling.cli.options import (
    Common,
    Config,
    Format,
    OutputFormat,
    Quiet,
    Traceback,
    Verbose,
    pipeline_file,
    settings_of,
)
from streamling.cli.terminal import ask

if TYPE_CHECKING:
    from streamling.engine.replay import Outcome
    from streamling.letters.letter import Letter
    from streamling.letters.selection import DeadLetters, Filter
    from streamling.spec.settings import Settings


class Status(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    ALL = "all"


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [ID]...",
        help="Pipeline file (with a . or /; by default ./pipeline.yaml), then ids of letters, or how they begin.",
        autocompletion=pipeline_files,
        show_default=False,
    ),
]
Node = Annotated[str | None, typer.Option(metavar="NAME", help="Only letters of this node.", show_default=False)]
Reason = Annotated[str | None, typer.Option(metavar="CODE", help="Only this reason code.", show_default=False)]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only since this time: `2026-01-31T12:00:00Z`, or `2h` ago.", show_default=False),
]
StatusOption = Annotated[Status, typer.Option(help="Only letters with this status.")]
All = Annotated[bool, typer.Option("--all", help="All letters that the options choose.")]
# The reason of a failure may have several lines.
_MOST_SHOWN = 10
app = new_app()


@app.callback(
    cls=CommandGroup,
    epilog="""
streamling dlq list                     open letters and totals
streamling dlq show orders.yaml 3f2a91  one letter in full
streamling dlq replay orders.yaml --all through the pipeline again
streamling dlq discard --all --node orders
""",
)
def dlq() -> None:
    """Show, replay, discard or export rows that were not delivered."""


@app.command(
    "list",
    cls=Command,
    epilog="""
streamling dlq list orders.yaml
streamling dlq list --node orders --since 2h
streamling dlq list --status all --format json | jq .reason_code
""",
)
def list_(
    words: Words = None,
    node: Node = None,
    reason: Reason = None,
    since: Since = None,
    status: StatusOption = Status.OPEN,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most this many.", show_default=False)
    ] = None,
    format_: OutputFormat = Format.TEXT,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """List letters, one line each, and totals by node and reason."""
    chosen = _Choice(words, node, reason, since, status)
    common = Common(config, verbose, quiet, traceback)
    return chosen.use(common, lambda found: _list(found.letters, limit, format_))


@app.command(cls=Command, epilog="\nstreamling dlq show orders.yaml 3f2a91\n")
def show(
    words: Words = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Show letters in full, as JSON, payloads also as text."""
    chosen = _Choice(words, status=Status.ALL)
    chosen.require_ids()
    return chosen.use(Common(config, verbose, quiet, traceback), lambda found: _show(found.letters))


@app.command(
    cls=Command,
    epilog="""
streamling dlq replay orders.yaml 3f2a91
streamling dlq replay --all --node orders
streamling dlq replay --reason cast_error --since 2h
""",
)
def replay(
    words: Words = None,
    all_: All = False,
    node: Node = None,
    reason: Reason = None,
    since: Since = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Put letters through the pipeline again, from their node on."""
    chosen = _Choice(words, node, reason, since)
    chosen.require(all_)
    common = Common(config, verbose, quiet, traceback)
    return chosen.use(common, lambda found: _replay(found, common))


@app.command(
    cls=Command,
    epilog="""
streamling dlq discard orders.yaml 3f2a91
streamling dlq discard --all --node orders --yes
""",
)
def discard(
    words: Words = None,
    all_: All = False,
    node: Node = None,
    reason: Reason = None,
    since: Since = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Mark letters as discarded. Nothing is erased."""
    chosen = _Choice(words, node, reason, since)
    chosen.require(all_)
    return chosen.use(
        Common(config, verbose, quiet, traceback),
        lambda found: _discard(found.destinations, found.letters, confirmed=yes),
    )


@app.command(cls=Command, epilog="\nstreamling dlq export --status all --output letters.jsonl\n")
def export(
    words: Words = None,
    node: Node = None,
    reason: Reason = None,
    since: Since = None,
    status: StatusOption = Status.OPEN,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default standard output.", show_default=False)
    ] = None,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Write letters in full as JSON lines."""
    chosen = _Choice(words, node, reason, since, status)
    return chosen.use(Common(config, verbose, quiet, traceback), lambda found: _export(found.letters, output))


@dataclass(frozen=True, slots=True)
class _Found:
    """The letters that the arguments choose, and where they come from."""

    file: Path
    settings: Settings
    destinations: DeadLetters
    letters: list[Letter]


class _Choice:
    """The arguments that choose letters."""

    def __init__(
        self,
        words: list[str] | None,
        node: str | None = None,
        reason: str | None = None,
        since: str | None = None,
        status: Status = Status.OPEN,
    ) -> None:
        files = [word for word in words or () if "." in word or "/" in word]
        if len(files) > 1:
            raise typer.BadParameter(f"there are two pipeline files: {files[0]} and {files[1]}", param_hint="FILE")
        self._file = files[0] if files else None
        self._ids = [word for word in words or () if word not in files]
        self._node = node
        self._reason = reason
        self._since = _moment(since)
        self._status = status

    def require_ids(self) -> None:
        if not self._ids:
            raise typer.BadParameter("name at least one letter; `streamling dlq list` shows their ids", param_hint="ID")

    def require(self, everything: bool) -> None:
        if not (everything or self._ids or self._node or self._reason or self._since):
            raise typer.BadParameter("name letters, or say --all", param_hint="ID")

    def use(self, common: Common, action: Callable[[_Found], int]) -> int:
        return attempt(lambda: self._use(common, action), with_trace=common.traceback)

    def _use(self, common: Common, action: Callable[[_Found], int]) -> int:
        from streamling.engine.preparation import check
        from streamling.letters.selection import dead_letters

        loaded = settings_of(common, level="warn")
        file, settings = pipeline_file(self._file, loaded), loaded.settings
        plan = check(file, settings, probe=False)
        with dead_letters(plan, settings) as found:
            if not found.stores:
                print("no node of the pipeline has 'on_error: dead_letter'", file=sys.stderr)
                return 1 if self._ids else 0
            ids = {text: found.ids_for(text) for text in self._ids}
            if problem := _problem(ids):
                print(problem, file=sys.stderr)
                return 1
            chosen = self._filter([id_ for (id_,) in ids.values()])
            return action(_Found(file, settings, found, found.choose(chosen)))

    def _filter(self, ids: list[str]) -> Filter:
        from streamling.letters.letter import LetterStatus
        from streamling.letters.selection import Filter

        status = None if self._status is Status.ALL else LetterStatus(self._status.value)
        return Filter(ids, self._node, self._reason, self._since, status)


def _problem(ids: Mapping[str, Sequence[str]]) -> str | None:
    """What is wrong with the ids that were given: each must be that of one letter, or its beginning."""
    if missing := [text for text, found in ids.items() if not found]:
        return f"there is no letter {', '.join(missing)}; `streamling dlq list --status all` lists all"
    several = ((text, len(found)) for text, found in ids.items() if len(found) > 1)
    return next((f"the ids of {count} letters begin with {text}: give more of it" for text, count in several), None)


def _moment(since: str | None) -> datetime | None:
    from streamling.letters.selection import parse_since

    if since is None:
        return None
    try:
        return parse_since(since, datetime.now(UTC))
    except ValueError:
        raise typer.BadParameter(f"'{since}' is neither a time nor a duration", param_hint="--since") from None


def _list(letters: list[Letter], limit: int | None, format_: Format) -> int:
    shown = letters[:limit]
    if format_ is Format.JSON:
        for letter in shown:
            print(json.dumps({k: v for k, v in letter.to_json().items() if k not in ("raw", "row")}))
        return 0
    for letter in shown:
        print(f"{letter.id}  {letter.timestamp}  {letter.node}  {letter.stage}  {letter.reason_code}  {letter.place}")
    if len(shown) < len(letters):
        print(f"... and {len(letters) - len(shown)} more")
    _print_totals(letters)
    return 0


def _print_totals(letters: list[Letter]) -> None:
    from streamling.cli.quantities import number_of

    totals = Counter((letter.node, letter.reason_code) for letter in letters)
    if len(letters) > 1:
        print()
    for (node, reason), count in sorted(totals.items()):
        print(f"{node}  {reason}  {count:,}")
    if not letters:
        print("no dead letters", file=sys.stderr)
    elif len(totals) > 1:
        print(number_of(len(letters), "letter"))


def _show(letters: list[Letter]) -> int:
    for letter in letters:
        content = letter.to_json()
        for name in ("raw", "raw_key"):
            text = _text(getattr(letter, name))
            if text is not None:
                content[f"{name}_text"] = text
        print(json.dumps(content, indent=2))
    return 0


def _text(payload: bytes | None) -> str | None:
    """The payload as text, if it is readable text."""
    try:
        text = payload.decode() if payload else None
    except UnicodeDecodeError:
        return None
    return text if text is not None and all(c.isprintable() or c in "\n\t\r" for c in text) else None


def _discard(found: DeadLetters, letters: list[Letter], *, confirmed: bool) -> int:
    from streamling.cli.quantities import number_of
    from streamling.letters.letter import LetterStatus

    if not letters:
        print("no open dead letters", file=sys.stderr)
        return 0
    number = number_of(len(letters), "letter")
    if not confirmed and (code := ask(f"discard {number}?")):
        return code
    found.resolve(letters, LetterStatus.DISCARDED)
    print(f"discarded {number}")
    return 0


def _replay(found: _Found, common: Common) -> int:
    from streamling.engine.replay import Replays
    from streamling.engine.run import Run

    if not found.letters:
        print("no open dead letters", file=sys.stderr)
        return 0
    if not common.quiet:
        print("warning: a replayed row may overwrite a newer row with the same key", file=sys.stderr)
    replays = Replays(found.file, found.settings, found.destinations, found.letters)
    try:
        Run(replays, found.settings, verbose=common.verbose).execute()
    finally:
        _print_outcome(found, replays.outcome())
    return 0 if replays.outcome().complete else 1


def _print_outcome(found: _Found, outcome: Outcome) -> None:
    from streamling.cli.quantities import number_of

    print(f"replayed {number_of(outcome.replayed, 'letter')}")
    for id_ in outcome.failed[:_MOST_SHOWN]:
        letter = found.destinations.letter(id_)
        if letter is not None:
            print(f"{id_}  {letter.node}  {letter.reason_code}  {letter.reason_text}", file=sys.stderr)
    for count, what in ((len(outcome.failed), "failed again"), (outcome.left, "not replayed")):
        if count:
            print(f"{number_of(count, 'letter')} {what}, still open", file=sys.stderr)
    if outcome.new:
        rows = number_of(outcome.new, "row")
        print(f"{rows} rejected by a later node: `streamling dlq list` lists the new letters", file=sys.stderr)


def _export(letters: list[Letter], output: Path | None) -> int:
    lines = "".join(f"{letter.to_line()}\n" for letter in letters)
    if output is None:
        sys.stdout.buffer.write(lines.encode(errors="backslashreplace"))
        return 0
    from streamling.cli.quantities import number_of

    output.write_bytes(lines.encode(errors="backslashreplace"))
    print(f"wrote {number_of(len(letters), 'letter')} to {output}")
    return 0
