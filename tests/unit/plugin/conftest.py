"""Fixtures of the tests that load plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamling.plugin.loading import load_plugins
from streamling.spec.settings import Settings


@pytest.fixture(autouse=True, scope="module")
def no_plugins_left() -> Iterator[None]:
    """What a test has loaded would be there for all that come after it in this process."""
    yield
    load_plugins(Settings())
