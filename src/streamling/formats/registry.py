"""The schema registry, over its HTTP interface."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from streamling.errors import SCHEMA_NOT_FOUND, PermanentError, StreamlingError, TransientError
from streamling.spec.blocks import KafkaConnection
from streamling.spec.secret import mask_url
from streamling.trust import HOW_TO_TRUST, tls_context

_MOST_REFERENCES = 100
_RETRIABLE = (408, 429)
# A registry answers at once or is in trouble; who reads then tries again anyway.
_ANSWER_S = 10.0


class NoSuchSchema(PermanentError):
    """The registry answers, and does not have it."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject. `references` are the texts of the schemas it builds on, each before its users."""

    id: int
    version: int
    text: str
    references: tuple[str, ...] = ()


class Registry:
    """A registry as the settings of a Kafka connection name it. Every request takes `timeout` seconds at most."""

    def __init__(self, connection: KafkaConnection, *, timeout: float = _ANSWER_S) -> None:
        import httpx

        password = connection.schema_registry_password
        user = connection.schema_registry_username
        self._url = connection.schema_registry_url.rstrip("/")
        self._client = httpx.Client(
            auth=(user, password.reveal()) if user and password else None,
            verify=tls_context(),  # also where the address has none: it may lead to one that has
            timeout=timeout,
            follow_redirects=True,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
        )

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject."""
        return self._version(subject, "latest")

    def by_id(self, id_: int) -> tuple[str, tuple[str, ...]]:
        """The text of a schema, and those it builds on, each before its users."""
        answer = self._get(f"/schemas/ids/{id_}")
        texts: dict[tuple[str, int], str] = {}
        self._collect(answer, texts)
        return answer["schema"], tuple(texts.values())

    def versions(self, id_: int) -> dict[str, int]:
        """The newest version, by subject, that a schema is."""
        found: dict[str, int] = {}
        for one in self._answer("GET", f"/schemas/ids/{id_}/versions", kind=list):
            subject, version = str(one["subject"]), int(one["version"])
            found[subject] = max(version, found.get(subject, version))
        return found

    def register(self, subject: str, text: str) -> int:
        """The id of an Avro schema as a version of a subject, added if it is not there."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return int(self._answer("POST", path, {"schema": text})["id"])

    def _version(self, subject: str, version: int | str) -> RegisteredSchema:
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise PermanentError(SCHEMA_NOT_FOUND, f"subject '{subject}' holds a schema of the type {kind}, not Avro")
        texts: dict[tuple[str, int], str] = {}
        self._collect(answer, texts)
        return RegisteredSchema(answer["id"], answer["version"], answer["schema"], tuple(texts.values()))

    def _collect(self, answer: dict[str, Any], texts: dict[tuple[str, int], str]) -> None:
        for reference in answer.get("references") or ():
            place = (reference["subject"], reference["version"])
            if place in texts or len(texts) >= _MOST_REFERENCES:
                continue
            inner = self._get(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            self._collect(inner, texts)
            texts[place] = inner["schema"]

    def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._answer("GET", path)
        return found

    def _answer(self, method: str, path: str, body: dict[str, Any] | None = None, *, kind: type = dict) -> Any:
        import httpx

        place = mask_url(self._url)
        try:
            response = self._client.request(method, self._url + path, json=body)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            # Without the cause, which may quote a password as the port.
            raise self._failed(PermanentError, f"the address of the schema registry, {place}, is no URL") from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            if _untrusted(error):
                message = f"the certificate of the schema registry at {place} is not trusted: {reason}"
                raise PermanentError(SCHEMA_NOT_FOUND, message, hint=HOW_TO_TRUST, cause=error) from error
            raise self._failed(
                TransientError, f"the schema registry at {place} does not answer: {reason}", error
            ) from error
        if response.is_success:
            try:
                content = response.json()
            except ValueError as error:
                raise self._failed(PermanentError, f"{place} does not answer like a schema registry", error) from error
            if isinstance(content, kind):
                return content
            raise self._failed(PermanentError, f"{place} does not answer like a schema registry")
        status = response.status_code
        error_class: type[StreamlingError] = TransientError if status >= 500 or status in _RETRIABLE else PermanentError
        if status == httpx.codes.NOT_FOUND:
            error_class = NoSuchSchema
        raise self._failed(
            error_class, f"the schema registry at {place} says {status} to {path}: {response.text[:300]}"
        )

    @staticmethod
    def _failed(kind: type[StreamlingError], message: str, cause: Exception | None = None) -> StreamlingError:
        return kind(SCHEMA_NOT_FOUND, message, cause=cause)


def _untrusted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
