"""A stop signal sets a flag and wakes the main thread; the rest is arithmetic."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamling.engine import run as run_module
from streamling.engine.execution import Execution
from streamling.engine.process.shutdown import close_all, drains, terminal_wait
from streamling.engine.process.signals import Signals
from streamling.engine.process.stop import StopRequest
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import DrainPolicy


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Signals()
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_remembered_and_ends_the_wait(signals: Signals, number: signal.Signals) -> None:
    assert signals.received is None
    threading.Timer(0.02, os.kill, (os.getpid(), number)).start()
    began = time.monotonic()
    signals.wait(5)
    assert time.monotonic() - began < 2
    assert signals.received is number


def test_a_signal_before_the_wait_is_not_missed(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    signals.wait(5)
    assert time.monotonic() - began < 2


def test_a_signal_that_another_thread_gets_ends_the_wait_too(signals: Signals) -> None:
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    threading.Timer(0.1, lambda: signal.pthread_kill(other.ident or 0, signal.SIGTERM)).start()
    began = time.monotonic()
    signals.wait(5)
    assert time.monotonic() - began < 2
    signals.wait(0)
    assert signals.received is signal.SIGTERM
    ended.set()


def test_another_thread_can_end_the_wait_without_a_signal(signals: Signals) -> None:
    threading.Timer(0.02, signals.wake).start()
    began = time.monotonic()
    signals.wait(5)
    assert time.monotonic() - began < 2
    assert signals.received is None


def test_without_news_the_wait_takes_its_time_and_old_news_is_used_up(signals: Signals) -> None:
    signals.wake()
    signals.wait(5)
    began = time.monotonic()
    signals.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_waking_never_blocks(signals: Signals) -> None:
    waker = threading.Thread(target=lambda: [signals.wake() for _ in range(100_000)])  # more than a pipe holds
    waker.daemon = True
    waker.start()
    waker.join(20)
    assert not waker.is_alive()


@pytest.mark.parametrize(("budget", "seconds"), [(25, 12), (60, 30), (8, 5), (4, 2), (2, 0), (100, 50)])
def test_the_last_epoch_gets_its_part_of_the_budget(budget: float, seconds: float) -> None:
    assert terminal_wait(budget) == seconds


AUTO, DRAIN, FAST = DrainPolicy.AUTO, DrainPolicy.DRAIN, DrainPolicy.FAST


@pytest.mark.parametrize(
    ("policy", "job_mode", "bounded", "expected"),
    [
        (DRAIN, False, False, True),
        (DRAIN, True, False, True),
        (DRAIN, False, True, True),
        (AUTO, False, False, False),
        (AUTO, True, False, True),
        (AUTO, False, True, True),
        (FAST, False, False, False),
        (FAST, True, False, False),
        (FAST, False, True, True),
        (FAST, True, True, True),
    ],
)
def test_which_policy_writes_what_was_read(policy: DrainPolicy, job_mode: bool, bounded: bool, expected: bool) -> None:
    assert drains(policy, job_mode=job_mode, bounded=bounded, unreplayable=False) is expected


def test_overriding_the_fast_policy_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    drains(FAST, job_mode=False, bounded=False, unreplayable=False)
    assert caplog.messages == []
    drains(FAST, job_mode=False, bounded=True, unreplayable=True)
    assert "overridden" in caplog.text


@pytest.mark.parametrize(("policy", "expected"), [(DRAIN, True), (AUTO, True), (FAST, False)])
def test_rows_of_a_plugin_source_are_written_unless_fast_is_asked_for(
    policy: DrainPolicy, expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert drains(policy, job_mode=False, bounded=False, unreplayable=True) is expected
    assert ("plugin source" in caplog.text) is (policy is FAST)


class Closing:
    def __init__(self, closed: list[str], name: str) -> None:
        self._closed, self._name = closed, name

    def close(self) -> None:
        time.sleep(0.3)
        self._closed.append(self._name)
        raise OSError("it is gone already")


def test_nodes_that_are_slow_to_close_do_not_add_up() -> None:
    closed: list[str] = []
    began = time.monotonic()
    close_all([Closing(closed, name) for name in "abcdef"])
    assert time.monotonic() - began < 1.7
    assert sorted(closed) == list("abcdef")


@pytest.mark.parametrize(("delivered", "said"), [(True, "all rows were delivered"), (False, "will be read again")])
def test_a_stop_that_only_closes_slowly_is_not_taken_for_a_lost_epoch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, signals: Signals, delivered: bool, said: str
) -> None:
    monkeypatch.setattr(run_module, "Watchdog", lambda *_: None)
    monkeypatch.setattr(run_module, "terminal_wait", lambda _: 0.05)
    execution = Execution(Path("p.yaml"), Settings())
    execution.stop, execution.delivered = StopRequest(), delivered
    run = run_module.Run(execution, Settings())
    run._shut_down(SimpleNamespace(kill=None), threading.Event(), signals)
    assert said in caplog.text
