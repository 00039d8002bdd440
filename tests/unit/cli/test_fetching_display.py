"""A fetch shows a bar on a terminal, and some lines elsewhere."""

from __future__ import annotations

import pytest

from streamling.cli import fetching
from streamling.cli.fetching import Watching


def test_without_a_terminal_a_fetch_is_a_few_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(fetching.time, "monotonic", lambda: now)
    with Watching() as watching:
        for step in range(10):
            now = 100.0 + step
            watching.fetching("kafka 4.3.1", step * 10_000_000, 100_000_000)
        watching.fetching("kafka 4.3.1", 100_000_000, 100_000_000)
        watching.said("starting kafka 4.3.1")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "fetching kafka 4.3.1: 0 of 100 MB",
        "fetching kafka 4.3.1: 50 of 100 MB",
        "fetched kafka 4.3.1, 100 MB",
        "starting kafka 4.3.1",
    ]


def test_on_a_terminal_a_fetch_is_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "can_draw", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Watching() as watching:
        watching.fetching("kafka 4.3.1", 50_000_000, 100_000_000)
        watching.said("waiting")
        watching.fetching("kafka 4.3.1", 100_000_000, 100_000_000)
    err = capsys.readouterr().err
    assert "fetching kafka 4.3.1" in err
    assert "100.0/100.0 MB" in err
    assert "waiting" in err
