"""The cluster tests run pipelines with the harness of the pipeline tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Workspace, workspace
from support.spark_cluster import SparkCluster, spark_cluster
from support.warm_engine import WarmEngine


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers of one core. A test that kills a worker starts it again."""
    with spark_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def driver(cluster: SparkCluster) -> Iterator[WarmEngine]:
    """Has all cores of the cluster as long as it lives: pipelines run on it one after the other."""
    engine = WarmEngine()
    yield engine
    engine.close()


@pytest.fixture
def place(tmp_path: Path, cluster: SparkCluster, driver: WarmEngine) -> Iterator[Workspace]:
    """An empty workspace whose pipelines run on the cluster."""
    with workspace(tmp_path, driver, **cluster.settings()) as made:
        yield made
