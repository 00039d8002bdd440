"""The number of cores is that of this process, or of the cluster."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamling.engine.process import cores as module
from streamling.engine.process.cores import cores, local_cores


def session(master: str, parallelism: int) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=parallelism))


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Eight cores and no limit; the file of the container's limit."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(module, "_QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.parametrize(("limit", "count"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_container_may_have_fewer_cores_than_the_machine(eight: Path, limit: str, count: int) -> None:
    assert local_cores() == 8
    eight.write_text(limit + "\n")
    assert local_cores() == count


def test_of_a_cluster_the_cores_of_its_executors_count() -> None:
    assert cores(session("spark://h:7077", 24)) == 24
    assert cores(session("local[10]", 10)) == 8
