"""The OpenAPI document of the admin API, made from the table of operations and the classes of the documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from streamling import __version__
from streamling.web.documents import (
    DeadLetters,
    Epochs,
    FatalError,
    Liveness,
    Pipeline,
    Problem,
    Readiness,
    RunProgress,
    State,
)

TEXT = "text/plain"
EVENTS = "text/event-stream"
_JSON = "application/json"
_REFS = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Operation:
    """A path with GET. `answers`: by status, the class of the JSON document, or another media type, or None."""

    path: str
    summary: str
    answers: Mapping[int, type | str | None]
    parameters: tuple[Mapping[str, Any], ...] = ()
    public: bool = False
    """Needs no token."""


_NODE_KEYS = {
    "name": "topology_node_keys",
    "in": "query",
    "required": False,
    "description": "Names of sources and transforms, separated by commas; all, if there are none.",
    "schema": {"type": "string"},
}
_LATER: Mapping[int, type] = {503: Problem}

OPERATIONS = (
    Operation("/healthz", "Whether the process is alive", {200: Liveness}, public=True),
    Operation("/health", "The same as /healthz", {200: Liveness}, public=True),
    Operation("/readyz", "Whether the pipeline makes progress", {200: Readiness, 503: Readiness}, public=True),
    Operation("/metrics", "All metrics, in the text format of Prometheus", {200: TEXT, **_LATER}),
    Operation("/openapi.json", "This document", {200: dict}),
    Operation("/admin/error", "The first fatal error; 204 while there is none", {200: FatalError, 204: None}),
    Operation("/admin/pipeline", "The graph, with columns, options and guarantees", {200: Pipeline, **_LATER}),
    Operation("/admin/progress", "The numbers of the live table", {200: RunProgress}),
    Operation("/admin/epochs", "The last hundred epochs, and where their time went", {200: Epochs}),
    Operation("/admin/state", "The stored positions", {200: State, **_LATER}),
    Operation("/admin/dlq", "The dead letters, counted and listed", {200: DeadLetters, **_LATER}),
    Operation(
        "/admin/live-data",
        "Rows as server-sent events: first those stored, then live ones",
        {200: EVENTS, 404: Problem, **_LATER},
        (_NODE_KEYS,),
    ),
)


@dataclass(slots=True)
class _Schemas:
    """The schemas of the documents by name, those that they refer to included."""

    known: dict[str, Any] = field(default_factory=dict)

    def reference(self, model: type) -> dict[str, Any]:
        if model is dict:
            return {"type": "object"}
        schema = TypeAdapter(model).json_schema(mode="serialization", ref_template=_REFS)
        self.known |= schema.pop("$defs", {})
        if "$ref" not in schema:
            self.known[model.__name__] = schema
        return {"$ref": _REFS.format(model=model.__name__)}


@cache
def openapi() -> dict[str, Any]:
    schemas = _Schemas()
    paths = {operation.path: {"get": _describe(operation, schemas)} for operation in OPERATIONS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamling admin API",
            "version": __version__,
            "description": "A running pipeline: its health, progress, rows and metrics. Read only.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.known.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    answers = {**operation.answers, 403: Problem}
    if not operation.public:
        answers[401] = Problem
    return {
        "operationId": operation.path.strip("/").replace("/", "_").replace(".", "_").replace("-", "_"),
        "summary": operation.summary,
        "parameters": list(operation.parameters),
        "responses": {str(status): _response(answer, schemas) for status, answer in sorted(answers.items())},
        "security": [{}] if operation.public else [{}, {"token": []}],
    }


def _response(answer: type | str | None, schemas: _Schemas) -> dict[str, Any]:
    match answer:
        case None:
            return {"description": "There is nothing to report."}
        case str():
            return {"description": "Text.", "content": {answer: {"schema": {"type": "string"}}}}
        case _:
            words = " ".join((answer.__doc__ or "").split()) if answer is not dict else "An OpenAPI document."
            return {"description": words, "content": {_JSON: {"schema": schemas.reference(answer)}}}
