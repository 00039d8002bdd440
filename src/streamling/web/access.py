"""Who may use the admin API: the token, and requests that a web page has made a browser send.

On a loopback address a web page could reach the API through the user's browser, under a name of its own that resolves
to this machine (DNS rebinding). So the names in `Host` and `Origin` must be those of this machine.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from streamling.spec.settings.environment_only import RuntimeLimits, is_loopback
from streamling.web.answers import problem

PROBES = frozenset({"/healthz", "/readyz", "/health"})
"""They need no token, because those who probe have none. Without it they answer with less."""
AUTHORIZED = "authorized"
"""The key in a request's state: whether the token, if one is needed, was right."""


@dataclass(frozen=True, slots=True)
class Access:
    """An ASGI application in front of another one."""

    app: ASGIApp
    limits: RuntimeLimits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _headers(scope)
        if self.limits.admin_api_is_local and not _is_for_this_machine(scope["method"], headers):
            await problem(403, "the Host or Origin header does not name this machine")(scope, receive, send)
            return
        authorized = self._is_authorized(headers.get("authorization", ""))
        if not authorized and scope["path"] not in PROBES:
            refusal = problem(401, "a valid bearer token is required", {"www-authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        scope["state"] = {**scope.get("state", {}), AUTHORIZED: authorized}
        await self.app(scope, receive, send)

    def _is_authorized(self, header: str) -> bool:
        token = self.limits.admin_api_token
        if not token:
            return True
        scheme, _, given = header.partition(" ")
        # Compared in constant time: the duration must not tell how much of a guess is right.
        # Clients send a token that is not ASCII as UTF-8.
        right = hmac.compare_digest(given.strip().encode("latin-1"), token.reveal().encode())
        return right and scheme.lower() == "bearer"


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_for_this_machine(method: str, headers: dict[str, str]) -> bool:
    if method not in ("GET", "HEAD") and "origin" not in headers and headers.get("sec-fetch-site") == "cross-site":
        return False  # a page whose browser hides where it comes from
    names = [f"//{headers.get('host', '')}", *([headers["origin"]] if "origin" in headers else [])]
    return all(_is_loopback_url(name) for name in names)


def _is_loopback_url(text: str) -> bool:
    try:
        return is_loopback(urlsplit(text).hostname or "")
    except ValueError:
        return False
