"""A local endpoint for examples/handler.yaml and examples/webhook.yaml: `python examples/endpoint.py`.

`/score` answers each row with a score, `/hook` prints what it gets. It remembers the keys of requests that it has
answered, so that a request which arrives again, after a crash or a lost answer, has no second effect. Uses only the
standard library.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8787
answers: dict[str, bytes] = {}
"""By idempotency key."""


def score(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "score": round(row["amount"] % 1, 3), "verdict": "check" if row["amount"] > 90 else "fine"}


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        if key not in answers:
            answers[key] = self._handle(rows)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answers[key])))
        self.end_headers()
        self.wfile.write(answers[key])

    def _handle(self, rows: Any) -> bytes:
        if self.path == "/score":
            return json.dumps([score(row) for row in rows]).encode()
        print(json.dumps(rows), flush=True)
        return b"{}"

    def log_message(self, *_: object) -> None:
        """Only rows are printed."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    with ThreadingHTTPServer(("127.0.0.1", port), Endpoint) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
        server.serve_forever()
