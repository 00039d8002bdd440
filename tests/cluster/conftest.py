"""The cluster tests run pipelines with the harness of the pipeline tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Workspace, workspace
from support.spark_cluster import SparkCluster, spark_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers of one core. A test that kills a worker starts it again."""
    with spark_cluster() as started:
        yield started


@pytest.fixture
def place(tmp_path: Path, cluster: SparkCluster) -> Iterator[Workspace]:
    """An empty workspace whose pipelines run on the cluster."""
    with workspace(tmp_path, **cluster.settings()) as made:
        yield made
