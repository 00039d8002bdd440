"""The fault tests run pipelines with the harness of the pipeline tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Workspace, workspace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    """An empty workspace."""
    with workspace(tmp_path) as made:
        yield made
