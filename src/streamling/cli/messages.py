"""`streamling dev produce|tail`: messages on topics of the local broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.options import Traceback
from streamling.cli.stack import DIRECTORY, Directory, Format, OutputFormat, opened, reported
from streamling.cli.terminal import printable

if TYPE_CHECKING:
    from streamling.clients.schema_registry import SchemaRegistry
    from streamling.dev.messages import Payload, Recipe
    from streamling.dev.stack import Stack
    from streamling.dev.topics import Message, Topics

_STANDARD_INPUT = "-"
# How many messages `tail` shows if nobody says; as other programs of that name.
_SHOWN = 10
app = new_app()

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


@app.command(
    cls=Command,
    epilog="""
streamling dev produce orders rows.jsonl --key id --partitions 3
streamling dev produce orders rows.jsonl --avro o.avsc --op-column _gs_op
streamling dev produce orders - --rate 100    lines of standard input
""",
)
def produce(
    topic: Topic,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON objects, one per line; - is standard input.")],
    avro: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA",
            help="Write Avro with the schema of this file, which is registered for the topic.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the key; several with commas between.", show_default=False),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Header of every message; may be repeated.", show_default=False),
    ] = None,
    op_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column with i, u or d: goes into the header dbz.op instead.", show_default=False
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Partitions of a topic that is made; 1 by default.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="Messages per second.", show_default=False)
    ] = None,
    directory: Directory = DIRECTORY,
    traceback: Traceback = False,
) -> int:
    """Put rows on a topic, which is made if it is not there."""
    headers = tuple(_header(text) for text in header or ())
    columns = tuple(key.split(",")) if key else ()

    def send() -> int:
        from streamling.dev.messages import Recipe, messages

        stack = opened(directory)
        topics = _topics(stack)
        with _lines(file) as lines:
            recipe = Recipe(columns, headers, op_column)
            if avro is not None:
                recipe = _with_avro(recipe, avro, topic, stack)
            if partitions is not None or topics.partitions(topic) is None:
                topics.create(topic, partitions or 1)
            shown = "standard input" if file == _STANDARD_INPUT else file
            count = topics.send(topic, messages(lines, recipe, shown), rate=rate)
        print(f"sent {count:,} messages to {topic}")
        return 0

    return reported(send, with_trace=traceback)


@app.command(
    cls=Command,
    epilog="""
streamling dev tail orders                    the last 10 messages
streamling dev tail orders --from-beginning   all there are now
streamling dev tail orders --follow           also new ones, until Ctrl-C
streamling dev tail orders --format json | jq .value
""",
)
def tail(
    topic: Topic,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest message.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Most messages shown; 10 if neither the start nor a wait is asked for.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more.")] = False,
    directory: Directory = DIRECTORY,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Show the messages of a topic. Avro is read with the registry, bytes are hex."""

    def show() -> int:
        from streamling.dev.messages import PayloadReader

        stack = opened(directory)
        last = None if from_beginning else limit or _SHOWN
        with ExitStack() as open_:
            registry = open_.enter_context(_registry(stack)) if stack.runs("registry") else None
            reader = PayloadReader(registry)
            for message in islice(_topics(stack).read(topic, last=last, follow=follow), limit):
                payload = reader.payload(message.value)
                print((_json if format_ is Format.JSON else _text)(topic, message, payload), flush=follow)
        return 0

    return reported(show, with_trace=traceback, interrupted=0 if follow else 130)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"'{text}' is not of the form name=value", param_hint="--header")
    return name, value.encode()


def _topics(stack: Stack) -> Topics:
    from streamling.dev.stack import SERVERS
    from streamling.dev.topics import Topics

    return Topics(SERVERS["kafka"].address(stack.site("kafka")))


def _registry(stack: Stack) -> SchemaRegistry:
    from streamling.clients.schema_registry import SchemaRegistry
    from streamling.dev.stack import SERVERS
    from streamling.spec.settings.blocks import KafkaConnection

    url = SERVERS["registry"].address(stack.site("registry"))
    return SchemaRegistry(KafkaConnection(schema_registry_url=url))


def _with_avro(recipe: Recipe, file: Path, topic: str, stack: Stack) -> Recipe:
    from dataclasses import replace

    from streamling.dev.row_codec import RowCodec
    from streamling.errors import SCHEMA_UNUSABLE, UserError

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(SCHEMA_UNUSABLE, f"'{file}' cannot be read: {error}", cause=error) from error
    codec = RowCodec(text)
    with _registry(stack) as registry:
        return replace(recipe, avro=codec, schema_id=registry.register(f"{topic}-value", text))


@contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    from streamling.errors import DATA_ERROR, UserError

    if file == _STANDARD_INPUT:
        yield iter(sys.stdin.buffer)
        return
    try:
        lines = Path(file).open("rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(DATA_ERROR, f"'{file}' cannot be read: {error.strerror}", cause=error) from error
    with lines:
        yield iter(lines)


def _text(_: str, message: Message, payload: Payload) -> str:
    words = [f"{message.partition}:{message.offset}", _time(message)]
    words += [f"key={_shown(message.key)}"] if message.key is not None else []
    words += [f"{name}={_shown(value)}" for name, value in message.headers]
    return "  ".join([*words, printable(payload.text) if payload.text is not None else "(no payload)"])


def _json(topic: str, message: Message, payload: Payload) -> str:
    about = {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _shown(message.key),
        "headers": [[name, _shown(content)] for name, content in message.headers],
        "format": payload.format,
        "schema_id": payload.schema_id,
    }
    # As it is: numbers keep their digits. Line ends between the parts of JSON are only there to be looked at.
    known = payload.format in ("avro", "json") and payload.text is not None
    value = " ".join(payload.text.splitlines()) if known and payload.text else json.dumps(payload.text)
    return f'{json.dumps(about, ensure_ascii=False)[:-1]}, "value": {value}}}'


def _time(message: Message) -> str:
    if message.timestamp is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(message.timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # no year has it
        return str(message.timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(content: bytes | None) -> str | None:
    from streamling.dev.messages import PayloadReader

    return PayloadReader(None).payload(content).text
