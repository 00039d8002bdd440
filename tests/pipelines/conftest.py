"""Fixtures of the tests that run whole pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.harness import MakeWorkspace, workspace
from support.warm_engine import WarmEngine


@pytest.fixture(scope="module")
def new_place(tmp_path_factory: pytest.TempPathFactory, warm_engine: WarmEngine) -> Iterator[MakeWorkspace]:
    """Makes workspaces that a whole module shares: a start is dear, looking at its result is not."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            workspace(tmp_path_factory.mktemp("place"), warm_engine, **settings)
        )
