"""Options of nodes that post rows to a URL."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from streamling.spec.faults import invalid_value, wrong_type
from streamling.spec.pipeline.options import Options
from streamling.spec.secret import Secret

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_MEDIA_TYPE = re.compile(rf"{_HEADER_NAME.pattern}/{_HEADER_NAME.pattern}[ \t]*(;.*)?")
# A wrong value would make requests that no server can read.
_OWN_HEADERS = ("content-length", "transfer-encoding", "content-encoding")
_NOT_PRINTABLE = re.compile(r"[\s\x00-\x1f\x7f]")


def is_header_name(text: str) -> bool:
    return _HEADER_NAME.fullmatch(text) is not None


def is_header_value(text: str) -> bool:
    return _HEADER_VALUE.fullmatch(text) is not None


class Endpoint(Options):
    """Mix-in: the node posts its rows to a URL, as JSON."""

    url: str = Field(description="Address that rows are posted to, `http` or `https`.")
    headers: dict[str, Secret] = Field(default_factory=dict, description="Headers of each request; values are secrets.")
    secret_name: str | None = Field(
        default=None, min_length=1, description="Name of a secret in the settings that is sent as one more header."
    )
    one_row_per_request: bool = Field(default=False, description="Send one row per request instead of a list of rows.")
    payload_version: Literal[0, 1] = Field(
        default=0, description="Format of a row: 0 is the row itself, 1 an object with `data` and `metadata`."
    )
    compression: Literal["none", "gzip"] = Field(default="none", description="Compression of the bodies of requests.")
    sign_with: str | None = Field(
        default=None,
        min_length=1,
        description="Name of a secret in the settings; each request is signed with its value, in the header "
        "`X-Streamling-Signature`.",
    )
    max_requests_per_second: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Limit of the requests to the host of the URL."
    )
    deduplicate_requests: bool = Field(
        default=False, description="Send equal bodies of one epoch only once; the answer counts for all of them."
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if (fault := _url_fault(url)) is not None:
            raise invalid_value(f"must be a complete URL like https://example.com/rows: {fault}")
        return url

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        seen: dict[str, str] = {}
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise invalid_value("is not a valid header name", field=name)
            if not _HEADER_VALUE.fullmatch(value.reveal()):
                raise invalid_value("must have a value that is one line of printable ASCII characters", field=name)
            if name.lower() == "content-type" and not _MEDIA_TYPE.fullmatch(value.reveal()):
                raise invalid_value("is not a valid media type like application/json", field=name)
            if name.lower() in _OWN_HEADERS:
                raise invalid_value("is a header that follows from the body and cannot be set", field=name)
            if (first := seen.setdefault(name.lower(), name)) != name:
                raise invalid_value(f"is the same header as '{first}'; case does not matter", field=name)
        return headers

    @field_validator("payload_version", mode="before")
    @classmethod
    def _check_version(cls, version: object) -> object:
        if isinstance(version, bool) or not isinstance(version, int):
            raise wrong_type("must be a whole number, 0 or 1")
        return version


def _url_fault(url: str) -> str | None:
    """What is wrong with a URL. The text repeats no part of it, since a URL may contain credentials."""
    if (character := _NOT_PRINTABLE.search(url)) is not None:
        return f"character {character.start() + 1} is a space or not printable"
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or "://" not in url:
            return "it must begin with http:// or https://"
        if not parts.hostname:
            return "it has no host"
        return None if parts.port != 0 else "0 is not a valid port"
    except ValueError:
        return "its host or port is not valid"
