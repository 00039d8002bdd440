"""`streamling top`: the live table of a pipeline that runs elsewhere, from its admin API."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.failure import attempt
from streamling.cli.options import Common, Config, Traceback, settings_of

if TYPE_CHECKING:
    import httpx

    from streamling.web.documents import RunProgress

EXAMPLES = """
streamling top                                 the pipeline on this machine
streamling top --port 3001                     another one
streamling top --url http://orders-0:3000 --token "$TOKEN"
"""
# A healthy process answers in milliseconds; one whose cores are busy may take longer.
_TIMEOUT_S = 5.0
# A pipeline that is restarted comes back within seconds; then it is another run.
_LOST_AFTER = 3
# Without a terminal: wide enough for all columns, and as many lines as there are.
_PLAIN_WIDTH = 120
_OTHER_LINES = 40
# The answer for a pipeline of thousands of nodes is smaller. Whatever answers with more is something else.
_MOST_BYTES = 16 << 20
_URL_HINT = "write it as http://host:port"
TOKEN_VARIABLE = "STREAMLING__ADMIN_API_TOKEN"
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def top(
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65535,
            help="Port on this machine; by default `admin_api_port` of the settings.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of another machine's admin API.", show_default=False)
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help=f"Bearer token; by default {TOKEN_VARIABLE}.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    config: Config = None,
    traceback: Traceback = False,
) -> int:
    """Show the live table of a running pipeline."""
    if port is not None and url is not None:
        raise typer.BadParameter("use either --port or --url", param_hint="--url")
    common = Common(config, traceback=traceback)
    return attempt(lambda: _top(port, url, token, common, once=once), with_trace=traceback, interrupted=0)


def _top(port: int | None, url: str | None, token: str | None, common: Common, *, once: bool) -> int:
    from streamling.cli.terminal import can_draw

    if url is None:
        settings = settings_of(common, level="warn").settings
        url = f"http://{_reachable(settings.runtime.admin_api_host)}:{port or settings.admin_api_port}"
    with _client(url, (token or os.environ.get(TOKEN_VARIABLE) or "").strip()) as client:
        if once or not can_draw(sys.stderr):
            _print_once(client)
        else:
            _show(client)
    return 0


def _reachable(host: str) -> str:
    """The address at which this machine reaches what listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _client(url: str, token: str) -> httpx.Client:
    import httpx

    from streamling.errors import ADMIN_API, UserError
    from streamling.spec.mask import mask_url

    headers = {b"authorization": f"Bearer {token}".encode()} if token else {}
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UserError(ADMIN_API, f"'{mask_url(url)}' is not a URL: {error}", hint=_URL_HINT) from error
    if address.scheme not in ("http", "https") or not address.host:
        raise UserError(ADMIN_API, f"'{mask_url(url)}' is not a URL", hint=_URL_HINT)
    return httpx.Client(base_url=address, headers=headers, timeout=_TIMEOUT_S, trust_env=False)


def _print_once(client: httpx.Client) -> None:
    from streamling.cli.display import phase_word
    from streamling.cli.table import Glyphs, View, lines
    from streamling.cli.terminal import print_styled

    found = _fetch(client)
    snapshot = found.snapshot
    rates = {node.name: snapshot.per_second(node.throughput or 0) for node in snapshot.nodes}
    rate = snapshot.per_second(snapshot.rows)
    view = View(found.file, snapshot, phase_word(snapshot.phase), rates, rate, {}, found.places)
    table = lines(view, _PLAIN_WIDTH, len(snapshot.nodes) + _OTHER_LINES, Glyphs.for_encoding(sys.stdout.encoding))
    print_styled(sys.stdout, ([*line] for line in table))


def _show(client: httpx.Client) -> None:
    """Until the pipeline ends, or Ctrl-C."""
    from streamling.cli.display import Pace, Painter
    from streamling.errors import StreamlingError

    found = _fetch(client)
    painter = Painter(found.file)
    pace, failures = Pace(), 0
    try:
        while failures < _LOST_AFTER:
            painter.places = found.places
            painter.draw(found.snapshot)
            time.sleep(pace.pause(found.snapshot))
            try:
                found = _fetch(client)
                failures = 0
            except StreamlingError:
                failures += 1
    finally:
        painter.screen.release()
    from streamling.spec.mask import mask_url

    print(f"the pipeline at {mask_url(str(client.base_url))} does not answer any more", file=sys.stderr)


def _fetch(client: httpx.Client) -> RunProgress:
    """Raises TransientError if nothing answers, UserError if the token is wrong or it is no admin API."""
    import httpx
    from pydantic import TypeAdapter, ValidationError

    from streamling.errors import ADMIN_API, TransientError, UserError
    from streamling.spec.mask import mask_url
    from streamling.web.documents import RunProgress

    address = mask_url(str(client.base_url))
    try:
        status, content = _get(client, "/admin/progress")
    except httpx.HTTPError as error:
        hint = (
            "start the pipeline with admin_api_enabled or live_data_inspect_enabled; its log has the address of its "
            "admin API"
        )
        message = f"no pipeline answers at {address}: {str(error) or type(error).__name__}"
        raise TransientError(ADMIN_API, message, hint=hint) from error
    if status == httpx.codes.UNAUTHORIZED:
        wrong = "its token is another one" if "authorization" in client.headers else "it needs a token"
        hint = f"use --token, or set {TOKEN_VARIABLE}"
        raise UserError(ADMIN_API, f"the pipeline at {address} refuses the request: {wrong}", hint=hint)
    try:
        if status != httpx.codes.OK:
            raise ValueError(f"HTTP status {status}")
        return TypeAdapter(RunProgress).validate_json(content)
    except ValueError as error:
        text = "not the admin API of a pipeline" if isinstance(error, ValidationError) else str(error)
        raise UserError(ADMIN_API, f"the answer of {address} cannot be used: {text}") from error


def _get(client: httpx.Client, path: str) -> tuple[int, bytes]:
    """Status and body. A body that is too long, or takes too long, is cut: no pipeline sends one."""
    content = bytearray()
    deadline = time.monotonic() + _TIMEOUT_S
    with client.stream("GET", path) as answer:
        for part in answer.iter_bytes():
            content += part
            if len(content) > _MOST_BYTES or time.monotonic() > deadline:
                break
        return answer.status_code, bytes(content)
