"""A download is a bar on a terminal, and some lines elsewhere."""

from __future__ import annotations

import pytest

from streamling.cli import download_bar
from streamling.cli.download_bar import DownloadBar


def test_without_a_terminal_a_download_is_a_few_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(download_bar.time, "monotonic", lambda: now)
    with DownloadBar() as bar:
        for step in range(10):
            now = 100.0 + step
            bar.progress("kafka 4.3.1", step * 10_000_000, 100_000_000)
        bar.progress("kafka 4.3.1", 100_000_000, 100_000_000)
        bar.message("starting kafka 4.3.1")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "downloading kafka 4.3.1: 0 of 100 MB",
        "downloading kafka 4.3.1: 50 of 100 MB",
        "downloaded kafka 4.3.1, 100 MB",
        "starting kafka 4.3.1",
    ]


def test_on_a_terminal_a_download_is_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_bar, "can_draw", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with DownloadBar() as bar:
        bar.progress("kafka 4.3.1", 50_000_000, 100_000_000)
        bar.message("waiting")
        bar.progress("kafka 4.3.1", 100_000_000, 100_000_000)
    err = capsys.readouterr().err
    assert "downloading kafka 4.3.1" in err
    assert "100.0/100.0 MB" in err
    assert "waiting" in err
