"""The fault tests run pipelines with the harness of the pipeline tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))

from harness import Workspace, workspace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    """An empty workspace."""
    with workspace(tmp_path) as made:
        yield made
