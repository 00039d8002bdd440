"""Answers of servers over HTTP."""

from __future__ import annotations

import gzip
from random import Random
from typing import Any

from fuzz.hostile_server import Send, endless, hostile_server
from fuzz.mutations import mutate_bytes
from fuzz.target import PLANT, Target, check_hidden, shown
from streamling.clients.clickhouse import ClickHouse
from streamling.clients.schema_registry import SchemaRegistry
from streamling.errors import StreamlingError
from streamling.spec.secret import Secret
from streamling.spec.settings.blocks import ClickHouseSourceSettings, KafkaSourceSettings


class HttpAnswers(Target):
    """Answers of a hostile server to the clients of the schema registry and of ClickHouse.

    The first byte chooses the client, the second how the answer is sent.
    """

    name = "http"
    seconds = 6.0
    _TIMEOUT = 1.0
    _JSON = (
        b'{"subject": "s", "id": 1, "version": 2, "schema": "{\\"type\\": \\"string\\"}", "schemaType": "AVRO", '
        b'"references": [{"name": "x", "subject": "s", "version": 1}]}',
        b'{"data": [["a", "String"], ["b", 1]], "rows": 2}',
        b'[{"subject": "s", "version": 1}]',
        b'{"id": 7}',
        b"[" * 100_000,
        b'{"a":' * 5_000,
        b'{"id": 1' + b"0" * 5000 + b"}",
        b"",
        b"null",
    )
    _HEADS = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=no-such\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Type: text/html; charset=utf-16\r\n",
        b"HTTP/1.1 404 Not Found\r\n",
        b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm="\xff"\r\n',
        b"HTTP/1.1 302 Found\r\nLocation: /again\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://[::1\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: http://\xe9\xff:99999/\r\n",
        b"HTTP/1.1 307 Moved\r\nLocation: http://u:p@127.0.0.1:1/\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 204 No Content\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5_000,
        b"SSH-2.0-OpenSSH\r\n",
    )

    def __init__(self) -> None:
        super().__init__()
        self._server = self.resources.enter_context(hostile_server())

    def make(self, random: Random) -> bytes:
        body, head = random.choice(self._JSON), random.choice(self._HEADS)
        if random.randrange(2):
            body = mutate_bytes(body, random, random.choice(self._JSON))
        match random.randrange(7):
            case 0:
                body, more = gzip.compress(body), b"Content-Encoding: gzip\r\n"
            case 1:
                body, more = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), b"Transfer-Encoding: chunked\r\n"
            case 2:
                more = b"Content-Length: %d\r\n" % (len(body) + random.choice((-1, 1, 5, 10**12)))
            case 3:
                more = b"Content-Encoding: %s\r\n" % random.choice((b"gzip", b"br", b"deflate", b"zstd", b"none"))
            case _:
                more = b"Content-Length: %d\r\n" % len(body)
        answer = head + more + b"\r\n" + body
        if not random.randrange(3):
            answer = mutate_bytes(answer, random, random.choice(self._HEADS))
        # Most answers are sent at once: the others take as long as the client is patient.
        how = random.choice(b"\x01\x02\x03\x04\x05") if not random.randrange(40) else 0
        return bytes([random.randrange(4), how]) + answer

    def run(self, data: bytes) -> None:
        self._server.answer = self._sender(data[1] if len(data) > 1 else 0, data[2:])
        url = self._server.url.replace("//", f"//user:{PLANT}@") if data[0] & 4 else self._server.url
        try:
            self._ask(data[0] % 4, url)
        except StreamlingError as error:
            check_hidden(shown(error))
            raise

    def _ask(self, number: int, url: str) -> None:
        secret = Secret(PLANT)
        if number == 3:
            settings = ClickHouseSourceSettings(url=url, user="u", password=secret)
            with ClickHouse(settings, application_id="fuzz", timeout=self._TIMEOUT) as server:
                server.rows("SELECT 1")
            return
        connection = KafkaSourceSettings(
            schema_registry_url=url, schema_registry_username="u", schema_registry_password=secret
        )
        with SchemaRegistry(connection, timeout=self._TIMEOUT) as registry:
            (lambda: registry.latest("s"), lambda: registry.by_id(1), lambda: registry.versions(1))[number]()

    @staticmethod
    def _sender(how: int, answer: bytes) -> Any:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        match how:
            case 1:
                return endless(head, b"1000\r\n" + b"a" * 4096 + b"\r\n")
            case 2:
                return endless(head, b"1\r\n \r\n", pause=0.2)
            case 3:
                return endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", pause=0.2)
            case 4:
                return endless(b"", b"", pause=0.2)
            case 5:
                bomb = gzip.compress(bytes(80_000_000))
                return lambda send: send(
                    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
                )

        def at_once(send: Send) -> None:
            send(answer)

        return at_once
