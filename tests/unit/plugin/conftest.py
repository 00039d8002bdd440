"""Fixtures of the tests that load plugins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamling.plugin.loading import load_plugins
from streamling.plugin.registration import Provenance, forget
from streamling.spec.settings import Settings
from support.plugin_nodes import Place


@pytest.fixture(autouse=True, scope="module")
def no_plugins_left() -> Iterator[None]:
    """What a test has loaded would be there for all that come after it in this process."""
    yield
    load_plugins(Settings())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """What a test registers is there for this test only."""
    yield Place(tmp_path)
    forget(Provenance.CODE)
