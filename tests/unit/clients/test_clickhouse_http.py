"""What goes to a ClickHouse server in a request, and what its answers mean."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from streamling import __version__
from streamling.clients.clickhouse import ClickHouse
from streamling.errors import PermanentError, StreamlingError, TransientError
from streamling.spec.secret import Secret
from streamling.spec.settings.blocks import ClickHouseSourceSettings

ATTEMPTS = 3
ROWS = json.dumps({"data": [["a", 1]]})


class Requests(list[tuple[str, dict[str, str], str]]):
    """Path, headers and body of every request."""

    url = ""


@contextmanager
def answering(status: int, body: str, **headers: str) -> Iterator[Requests]:
    """A server that says the same to everybody."""
    seen = Requests()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            seen.append((self.path, dict(self.headers), content))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        seen.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield seen
        finally:
            server.shutdown()
            thread.join()


def ask(url: str) -> list[list[object]]:
    connection = ClickHouseSourceSettings(url=url, user="ann", password=Secret("pass"), database="shop")
    with ClickHouse(connection, application_id="app 1", timeout=5) as server:
        return server.rows("SELECT {name:String}", name="a\tb\\c")


def test_a_request_says_who_asks_for_what() -> None:
    with answering(200, ROWS) as seen:
        assert ask(f"{seen.url}/proxy?route=1") == [["a", 1]]
    ((path, headers, body),) = seen
    assert path == "/proxy?route=1&param_name=a%5Ctb%5C%5Cc"
    assert body == "SELECT {name:String} FORMAT JSONCompact"
    assert headers["User-Agent"] == f"streamling/{__version__} app=app 1"
    assert headers["X-ClickHouse-Database"] == "shop"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"ann:pass").decode()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "241", TransientError),
        (503, "0", TransientError),
        (429, "0", TransientError),
        (408, "0", TransientError),
        (400, "62", PermanentError),
        (404, "60", PermanentError),
        (403, "516", PermanentError),
        (302, "0", PermanentError),
        (500, "497", PermanentError),
    ],
)
def test_a_refusal_passes_or_stays(status: int, code: str, kind: type[StreamlingError]) -> None:
    with answering(status, "Code: 1. Because.", X_ClickHouse_Exception_Code=code) as seen:
        with pytest.raises(kind) as caught:
            ask(seen.url.replace("//", "//ann:hidden@"))
    assert caught.value.code == "SCHEMA_NOT_FOUND"
    assert f"answers {status}: Code: 1. Because." in caught.value.message
    assert "hidden" not in caught.value.message


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", '{"data": 1}', ""])
def test_a_server_of_another_kind_is_noticed(body: str) -> None:
    with answering(200, body) as seen, pytest.raises(PermanentError, match="does not answer like ClickHouse"):
        ask(seen.url)


def test_a_password_is_not_sent_where_a_server_points_to() -> None:
    with answering(200, ROWS) as other, answering(307, "Moved.", Location=other.url) as seen:
        with pytest.raises(PermanentError, match="answers 307"):
            ask(seen.url)
    assert other == []
