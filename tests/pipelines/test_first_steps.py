"""The first minutes of a new user."""

from __future__ import annotations

import json

import pytest

from support.harness import AS_INSTALLED, Workspace, printed

pytestmark = pytest.mark.spark


def test_the_first_pipeline_runs_at_once(place: Workspace) -> None:
    place.run("init").succeeded()
    rows = printed(place.run("run", environment=AS_INSTALLED).succeeded().stdout)
    assert rows
    assert all(set(row) == {"id", "customer", "amount", "ordered_at", "_gs_op"} for *_, row in rows)
    assert all(row["amount"] > 20 for *_, row in rows)


def test_the_doctor_can_start_spark(place: Workspace) -> None:
    report = json.loads(place.run("doctor", "--start", "--format", "json", environment=AS_INSTALLED).succeeded().stdout)
    assert report["ok"] is True
    (spark,) = [check for check in report["checks"] if check["section"] == "Spark"]
    assert "counted 1,000 rows" in spark["text"]
