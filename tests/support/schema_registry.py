"""A real schema registry for tests: Apicurio, answering as Confluent's does."""

from __future__ import annotations

import httpx

from streamling.dev.stack import SERVERS, Stack
from support.local_stack import LocalServer


class SchemaRegistry(LocalServer):
    """A running registry that many tests share. `url` is what `schema_registry_url` takes; it survives restarts."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "registry")
        self.url = SERVERS["registry"].address(self.site)

    def register(self, subject: str, schema: str, references: list[dict[str, object]] | None = None) -> int:
        """Adds a version to a subject; gives the schema's id."""
        body = {"schema": schema, "references": references or []}
        answer = httpx.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["id"])

    def compatibility(self, subject: str, level: str) -> None:
        """What new versions of a subject must be able to do; BACKWARD unless set."""
        httpx.put(f"{self.url}/config/{subject}", json={"compatibility": level}, timeout=30).raise_for_status()
