"""`streamling dev produce|tail`: sends and shows messages of the local broker."""

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
from streamling.cli.failure import attempt
from streamling.cli.options import Format, OutputFormat, Traceback
from streamling.cli.quantities import number_of
from streamling.cli.stack import DIRECTORY, INTERRUPTED, Directory, open_stack
from streamling.cli.terminal import printable

if TYPE_CHECKING:
    from streamling.clients.schema_registry import SchemaRegistry
    from streamling.dev.messages import Payload, Recipe
    from streamling.dev.stack import Stack
    from streamling.dev.topics import Message, Topics

_STANDARD_INPUT = "-"
# As many as the `tail` of other systems.
_DEFAULT_LIMIT = 10
app = new_app()

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


@app.command(
    cls=Command,
    epilog="""
streamling dev produce orders rows.jsonl --key id --partitions 3
streamling dev produce orders rows.jsonl --avro o.avsc --op-column _gs_op
streamling dev produce orders - --rate 100    from standard input
""",
)
def produce(
    topic: Topic,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File with one JSON object per line; - for standard input.")
    ],
    avro: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA",
            help="Send Avro, with the schema in this file; it is registered for the topic.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of the message key; several are separated by commas.", show_default=False
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Header of every message; may be repeated.", show_default=False),
    ] = None,
    op_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with i, u or d, sent in the header dbz.op instead of the payload.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of partitions if the topic is created; by default 1.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="N", help="Send at most this many messages per second.", show_default=False),
    ] = None,
    directory: Directory = DIRECTORY,
    traceback: Traceback = False,
) -> int:
    """Send rows to a topic, which is created if it does not exist."""
    headers = tuple(_header(text) for text in header or ())
    columns = tuple(key.split(",")) if key else ()

    def send() -> int:
        from streamling.dev.messages import Recipe, messages

        stack = open_stack(directory)
        topics = _topics(stack)
        with _lines(file) as lines:
            recipe = Recipe(columns, headers, op_column)
            if avro is not None:
                recipe = _with_avro(recipe, avro, topic, stack)
            if partitions is not None or topics.partitions(topic) is None:
                topics.create(topic, partitions or 1)
            name = "standard input" if file == _STANDARD_INPUT else file
            count = topics.send(topic, messages(lines, recipe, name), rate=rate)
        print(f"sent {number_of(count, 'message')} to {topic}")
        return 0

    return attempt(send, with_trace=traceback, interrupted=INTERRUPTED)


@app.command(
    cls=Command,
    epilog="""
streamling dev tail orders                    the last 10 messages
streamling dev tail orders --from-beginning   all current messages
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
            help="Maximum number of messages; by default 10, unless --from-beginning or --follow is given.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new messages until Ctrl-C.")] = False,
    directory: Directory = DIRECTORY,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Show messages of a topic. Avro is decoded with the schema registry, other bytes are shown as hex."""

    def show() -> int:
        from streamling.dev.messages import PayloadReader

        stack = open_stack(directory)
        last = None if from_beginning else limit or _DEFAULT_LIMIT
        with ExitStack() as resources:
            registry = resources.enter_context(_registry(stack)) if stack.is_running("registry") else None
            reader = PayloadReader(registry)
            for message in islice(_topics(stack).read(topic, last=last, follow=follow), limit):
                payload = reader.payload(message.value)
                print((_json if format_ is Format.JSON else _text)(topic, message, payload), flush=follow)
        return 0

    return attempt(show, with_trace=traceback, interrupted=0 if follow else INTERRUPTED)


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
    words += [f"key={_display_text(message.key)}"] if message.key is not None else []
    words += [f"{name}={_display_text(value)}" for name, value in message.headers]
    return "  ".join([*words, printable(payload.text) if payload.text is not None else "(no payload)"])


def _json(topic: str, message: Message, payload: Payload) -> str:
    metadata = {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _display_text(message.key),
        "headers": [[name, _display_text(content)] for name, content in message.headers],
        "format": payload.format,
        "schema_id": payload.schema_id,
    }
    # The text itself, so that numbers keep their digits; line ends in JSON have no meaning.
    is_json = payload.format in ("avro", "json") and payload.text is not None
    value = " ".join(payload.text.splitlines()) if is_json and payload.text else json.dumps(payload.text)
    return f'{json.dumps(metadata, ensure_ascii=False)[:-1]}, "value": {value}}}'


def _time(message: Message) -> str:
    if message.timestamp is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(message.timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # outside of the years that datetime knows
        return str(message.timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _display_text(content: bytes | None) -> str | None:
    """A key or a header as text, or as hex."""
    from streamling.dev.messages import PayloadReader

    return PayloadReader(None).payload(content).text
