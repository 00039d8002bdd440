"""Client of the schema registry, over its HTTP interface."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from streamling.clients.http import HttpServer, classify_status
from streamling.errors import SCHEMA_NOT_FOUND, Condition, PermanentError, StreamlingError
from streamling.spec.settings.blocks import KafkaConnection

if TYPE_CHECKING:
    import httpx

_MAX_REFERENCES = 100
# A healthy registry answers at once, and readers retry anyway.
_TIMEOUT_S = 10.0


class NoSuchSchema(PermanentError):
    """The registry has no such schema or subject."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject. `references`: the texts of the schemas it refers to, each before those that use it."""

    id: int
    version: int
    text: str
    references: tuple[str, ...] = ()


class SchemaRegistry:
    """The schema registry of a Kafka connection in the settings. A request takes at most `timeout` seconds."""

    def __init__(
        self, connection: KafkaConnection, *, timeout: float = _TIMEOUT_S, condition: Condition = SCHEMA_NOT_FOUND
    ) -> None:
        self._condition = condition
        password = connection.schema_registry_password
        user = connection.schema_registry_username
        self._server = HttpServer(
            connection.schema_registry_url.rstrip("/"),
            name="the schema registry",
            condition=condition,
            timeout=timeout,
            user=(user, password.reveal()) if user and password else None,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
            classify=_classify,
            follow_redirects=True,
        )

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject."""
        return self._version(subject, "latest")

    def by_id(self, id_: int) -> tuple[str, tuple[str, ...]]:
        """The text of a schema, and of the schemas it refers to, each before those that use it."""
        answer = self._get(f"/schemas/ids/{id_}")
        texts: dict[tuple[str, int], str] = {}
        self._collect(answer, texts)
        return self._text(answer), tuple(texts.values())

    def versions(self, id_: int) -> dict[str, int]:
        """By subject, the newest version that has this schema."""
        newest: dict[str, int] = {}
        for entry in self._answer("GET", f"/schemas/ids/{id_}/versions", kind=list):
            if not isinstance(entry, dict):
                raise self._server.unexpected_answer()
            subject, version = str(entry.get("subject")), self._number(entry, "version")
            newest[subject] = max(version, newest.get(subject, version))
        return newest

    def register(self, subject: str, text: str) -> int:
        """Add an Avro schema as a version of a subject, unless it exists; returns its id."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._number(self._answer("POST", path, {"schema": text}), "id")

    def _version(self, subject: str, version: int | str) -> RegisteredSchema:
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise PermanentError(self._condition, f"subject '{subject}' holds a schema of the type {kind}, not Avro")
        texts: dict[tuple[str, int], str] = {}
        self._collect(answer, texts)
        numbers = self._number(answer, "id"), self._number(answer, "version")
        return RegisteredSchema(*numbers, self._text(answer), tuple(texts.values()))

    def _collect(self, answer: dict[str, Any], texts: dict[tuple[str, int], str]) -> None:
        references = answer.get("references") or []
        if not isinstance(references, list) or not all(isinstance(reference, dict) for reference in references):
            raise self._server.unexpected_answer()
        for reference in references:
            subject, version = str(reference.get("subject")), self._number(reference, "version")
            if (subject, version) in texts or len(texts) >= _MAX_REFERENCES:
                continue
            texts[subject, version] = ""  # schemas that refer to each other would never end
            inner = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            self._collect(inner, texts)
            # Moved to the end: after the schemas that it refers to.
            del texts[subject, version]
            texts[subject, version] = self._text(inner)

    def _text(self, answer: dict[str, Any]) -> str:
        """The schema in an answer."""
        if not isinstance(text := answer.get("schema"), str):
            raise self._server.unexpected_answer()
        return text

    def _number(self, answer: dict[str, Any], name: str) -> int:
        if not isinstance(number := answer.get(name), int):
            raise self._server.unexpected_answer()
        return number

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._answer("GET", path)
        return answer

    def _answer(self, method: str, path: str, body: dict[str, Any] | None = None, *, kind: type = dict) -> Any:
        content = self._server.json(method, path, json=body)
        if not isinstance(content, kind):
            raise self._server.unexpected_answer()
        return content


def _classify(response: httpx.Response) -> type[StreamlingError]:
    return NoSuchSchema if response.status_code == HTTPStatus.NOT_FOUND else classify_status(response)
