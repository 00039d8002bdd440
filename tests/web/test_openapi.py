"""The OpenAPI document says what the admin API does: requests made from it get the answers that it declares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.schemas import OpenApiSchema

from streamling.web.openapi import OPERATIONS, openapi
from support.admin_server import Served, served

TOKEN = "a-token-of-32-characters-or-more"


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(token=TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def schema(api: Served) -> OpenApiSchema:
    headers = {"authorization": f"Bearer {TOKEN}"}
    return schemathesis.openapi.from_url(f"{api.url}/openapi.json", headers=headers, wait_for_schema=10)


@pytest.mark.parametrize("path", [one.path for one in OPERATIONS if one.path != "/admin/live-data"])
def test_every_answer_is_as_declared(schema: OpenApiSchema, path: str) -> None:
    @given(case=schema[path]["GET"].as_strategy())
    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(headers={"authorization": f"Bearer {TOKEN}"}, timeout=20)

    check()


def test_every_path_is_described_and_served(api: Served) -> None:
    assert set(openapi()["paths"]) == {operation.path for operation in OPERATIONS}
    for operation in OPERATIONS:
        if operation.path != "/admin/live-data":
            answer = api.get(operation.path, authorization=f"Bearer {TOKEN}")
            assert answer.status_code in operation.answers, (operation.path, answer.text)
