"""A ClickHouse source without an engine, and a proxy that spoils answers of the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx
import pyarrow as pa

from streamling.connector import BadRow, Json, Room, Slice, kinds
from streamling.engine.preparation import probe_sources
from streamling.plan.contract import Discovery
from streamling.sources.clickhouse.source import ClickHouseSource
from streamling.spec.pipeline import load_pipeline
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import ClickHouseSourceSettings
from streamling.spec.settings.environment_only import RuntimeLimits
from support.clickhouse_server import ClickHouseServer

Row = dict[str, Any]
KEY = "clickhouse_source:s:v1"
PLENTY = Room(1_000_000, 1, 10_000)
_PIPELINE = "sources: {s: {type: clickhouse, %s}}\nsinks: {out: {type: print, from: s}}\n"


def source(
    server: ClickHouseServer, options: str, *, read: tuple[str, ...] = (), timeout: int = 60, **connection: Any
) -> ClickHouseSource:
    """Prepared, not opened. `read` are the columns that the pipeline uses, by default all."""
    pipeline = load_pipeline(_PIPELINE % options, "x.yaml", kinds.kinds())
    login = {"url": server.url, "user": server.user, "password": Secret(server.password)}
    block = ClickHouseSourceSettings(**(login | connection))
    settings = Settings(clickhouse_source=block, runtime=RuntimeLimits(query_timeout_sec=timeout))
    found = probe_sources(pipeline, settings)["s"]
    if not isinstance(found, Discovery):
        raise found
    (node,) = pipeline.sources
    made = cast(ClickHouseSource, kinds.build(node, settings))
    made.prepare(found.schema, read or found.schema.names)
    return made


def read_slice(made: ClickHouseSource, slice_: Slice) -> Iterator[Row | BadRow]:
    for part in slice_.parts:
        for item in made.reader().read(part):
            if isinstance(item, pa.RecordBatch):
                yield from item.to_pylist()
            elif isinstance(item, BadRow):
                yield item


def everything(made: ClickHouseSource, room: Room = PLENTY, positions: Mapping[str, Json] | None = None) -> list[Any]:
    """All rows from these positions on."""
    made.open(positions or {})
    rows: list[Any] = []
    while (offer := made.offer(room)) is not None:
        (slice_,) = offer.slices
        rows += read_slice(made, slice_)
    assert made.ended
    made.close()
    return rows


def steps(made: Callable[[], ClickHouseSource], room: Room) -> Iterator[tuple[Slice, list[Any]]]:
    """Every offer with its rows, each by a source that starts after the one before: as a restart after every epoch."""
    positions: dict[str, Json] = {}
    while True:
        one = made()
        one.open(positions)
        offer = one.offer(room)
        if offer is None:
            return
        (slice_,) = offer.slices
        yield slice_, list(read_slice(one, slice_))
        one.close()
        positions = {slice_.key: slice_.end}


class SpoilingProxy:
    """Before a server: spoils the answers to queries for rows, one after the other as `faults` says, then none.

    cut        half of the body, then the connection is closed
    short      the body without its last bytes, complete as far as HTTP is concerned
    exception  half of the body and the text of an exception, then the connection is closed
    silent     no answer for so long as `silence` says
    stalled    half of the body, then nothing for so long
    slow       the body in small pieces, for so long in all
    """

    def __init__(self, target: str, faults: list[str], silence: float = 3.0) -> None:
        self.faults = faults
        self._silence = silence
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                query = self.rfile.read(int(self.headers["Content-Length"]))
                forwarded = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
                answer = httpx.post(f"{target}{self.path}", content=query, headers=forwarded, timeout=60)
                fault = proxy.faults.pop(0) if proxy.faults and b"ArrowStream" in query else ""
                proxy._answer(self, answer, fault)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, handler: BaseHTTPRequestHandler, answer: httpx.Response, fault: str) -> None:
        if fault == "silent":
            time.sleep(self._silence)
        body = answer.content
        handler.send_response(answer.status_code)
        if code := answer.headers.get("X-ClickHouse-Exception-Code"):
            handler.send_header("X-ClickHouse-Exception-Code", code)
        if fault in ("stalled", "slow"):
            self._hesitate(handler, body, 2 if fault == "stalled" else 8)
            return
        if fault in ("cut", "exception"):
            piece = body[: len(body) // 2]
            if fault == "exception":
                text = b"Code: 241. DB::Exception: Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)"
                piece += b"\r\n__exception__\r\nabcdef\r\n" + text + b"\n74 abcdef\r\n__exception__\r\n"
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.close_connection = True
            return
        body = body[:-8] if fault == "short" else body
        handler.send_header("Content-Length", str(len(body)))
        with suppress(ConnectionError):  # the client may have given up
            handler.end_headers()
            handler.wfile.write(body)

    def _hesitate(self, handler: BaseHTTPRequestHandler, body: bytes, pieces: int) -> None:
        """Send the body in so many pieces, with pauses between them."""
        handler.send_header("Content-Length", str(len(body)))
        size = -(-len(body) // pieces)
        with suppress(ConnectionError):  # the client may have given up
            handler.end_headers()
            for start in range(0, len(body), size):
                time.sleep(self._silence / (pieces - 1) if start else 0)
                handler.wfile.write(body[start : start + size])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def spoiling_proxy(target: str, *faults: str, silence: float = 3.0) -> Iterator[SpoilingProxy]:
    proxy = SpoilingProxy(target, list(faults), silence)
    try:
        yield proxy
    finally:
        proxy.close()
