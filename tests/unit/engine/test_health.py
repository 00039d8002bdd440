"""Whether a run advances, and what it waits for."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamling.engine.protocol.health import Health, ProgressWatch
from streamling.engine.protocol.progress import Progress
from streamling.errors import NO_PROGRESS, Fenced, TransientError
from streamling.spec.settings import Settings
from streamling.telemetry.meters import RowCounts
from support.doubles import plan_of, until


class Troubled:
    trouble: str | None = None


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Example:
    """A running pipeline without an engine."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.progress = Progress()
        self.source, self.sink = Troubled(), Troubled()
        self.reading: float | None = None
        self.health = Health(self.progress, 10, clock=self.clock)

    def run(self) -> Example:
        self.progress.set_plan(plan_of(["numbers"], ["out"]))
        troubled = {"numbers": self.source, "out": self.sink}
        self.progress.set_running({}, troubled, bounded=False, reading={"numbers": lambda: self.reading})
        return self

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self.progress.activity.step("writing epoch 7", "out"):
            yield


def test_a_pipeline_that_waits_for_rows_is_healthy() -> None:
    example = Example().run()
    example.clock.ahead = 10_000
    assert example.health.longest_wait() is None


def test_a_start_that_does_not_end_is_a_stall() -> None:
    progress = Progress()
    assert Health(progress, 10).stall() is None
    time.sleep(0.02)
    stall = Health(progress, 0.01).stall()
    assert stall is not None
    assert (stall.node, stall.reason) == (None, "it is starting")


def test_a_start_that_does_not_end_names_what_it_does_and_the_node() -> None:
    progress = Progress()
    progress.set_plan(plan_of(["numbers"], ["out"]))
    health = Health(progress, 0.0)
    with progress.activity.step("opening sink 'out'", "out") as note_trouble:
        stall = health.stall()
        assert stall is not None
        assert (stall.node, stall.reason) == ("out", "it is starting: opening sink 'out'")
        note_trouble("no answer; password=hunter22")
        assert health.starting() == ("out", "no answer; password=*****")
    assert health.starting() == (None, None)


def test_a_step_that_does_not_end_is_a_stall_of_its_node() -> None:
    example = Example().run()
    with example.writing():
        example.clock.ahead = 9
        assert example.health.stall() is None
        example.clock.ahead = 11
        stall = example.health.stall()
        assert stall is not None
        assert stall.sentence == "'out' has made no progress for 11 s: writing epoch 7 does not end"
        example.progress.activity.advance()
        example.clock.ahead = 9
        assert example.health.stall() is None
    example.clock.ahead = 100
    assert example.health.stall() is None


def test_a_step_of_a_node_says_more_than_one_that_contains_it() -> None:
    example = Example().run()
    with example.progress.activity.step("recovering"), example.writing():
        example.clock.ahead = 11
        stall = example.health.stall()
    assert stall is not None
    assert stall.node == "out"


def test_trouble_without_rows_is_a_stall_and_trouble_with_rows_is_none() -> None:
    example = Example().run()
    example.sink.trouble = "password=hunter22 is wrong"
    with example.writing():
        for _ in range(5):
            example.clock.ahead += 9
            assert example.health.stall() is None
            example.progress.meter("out").count(RowCounts(rows_in=1))
        example.health.stall()
        example.clock.ahead += 11
        stall = example.health.stall()
        assert stall is not None
        assert (stall.node, stall.reason) == ("out", "password=***** is wrong")
    example.sink.trouble = None
    assert example.health.stall() is None


def test_of_steps_without_a_node_the_innermost_is_named() -> None:
    example = Example().run()
    activity = example.progress.activity
    with activity.step("delivering epoch 7"), activity.step("recording epoch 7 in the state backend"):
        example.clock.ahead = 11
        stall = example.health.stall()
    assert stall is not None
    assert (stall.node, stall.reason) == (None, "recording epoch 7 in the state backend does not end")


def test_a_sink_that_advances_does_not_hide_one_that_does_not() -> None:
    progress = Progress()
    progress.set_plan(plan_of(["numbers"], ["slow", "stuck"]))
    progress.set_running({}, {}, bounded=False)
    clock, activity = Clock(), progress.activity
    health = Health(progress, 10, clock=clock)
    with activity.step("writing epoch 7", "slow"), activity.step("writing epoch 7", "stuck"):
        time.sleep(0.02)
        activity.advance("slow")
        clock.ahead = 9.99
        stall = health.stall()
    assert stall is not None
    assert stall.node == "stuck"


def test_parts_of_a_step_that_are_done_are_an_advance_although_others_are_being_repeated() -> None:
    """Some of the requests of a sink are always being sent again; its rows count when the epoch is finalized."""
    example = Example().run()
    example.sink.trouble = "the endpoint answers 503"
    advance = example.progress.activity.advance
    with example.writing():
        example.clock.ahead = -8
        assert example.health.stall() is None  # the trouble is seen for the first time
        advance("out")
        example.clock.ahead = 5
        assert example.health.stall() is None
        advance("numbers")  # another node
        example.clock.ahead = 11
        stall = example.health.stall()
        assert stall is not None
        assert (stall.node, stall.reason) == ("out", "the endpoint answers 503")


def test_a_step_that_fails_and_is_retried_is_one_wait_from_its_first_attempt_on() -> None:
    example = Example().run()
    for attempt in range(3):
        with pytest.raises(TransientError), example.writing():
            example.clock.ahead = 6 * (attempt + 1)
            example.progress.activity.advance()  # rows reach the sink with every attempt
            raise TransientError(NO_PROGRESS, "no answer")
        example.sink.trouble = "no answer"
        stall = example.health.stall()
        assert (stall is not None) == (attempt > 0)
    with example.writing():
        pass
    example.clock.ahead = 0
    assert example.health.stall() is None


def test_failures_of_an_epoch_that_is_given_up_do_not_count_for_the_next_one() -> None:
    """A process that was fenced may be idle for hours before its sink writes again."""
    example = Example().run()
    with pytest.raises(Fenced), example.writing():
        raise Fenced(NO_PROGRESS, "another process has the partitions")
    example.progress.activity.forget_failures()
    example.clock.ahead = 10_000
    example.sink.trouble = "the database restarts"
    assert example.health.stall() is None


def test_tasks_of_spark_that_end_advance_a_long_step_and_java_that_does_not_answer_holds_up_nothing() -> None:
    example = Example().run()
    activity = example.progress.activity
    tasks = iter([1, 1, 2])
    activity.count_tasks = lambda: next(tasks)
    with example.writing():
        before = []
        for _ in range(3):
            before.append(activity.advanced)
            activity.look_at_tasks()
            assert activity._counting is not None
            activity._counting.join()
        assert before == [before[0]] * 3
        assert activity.advanced > before[0]
        answer = threading.Event()
        activity.count_tasks = answer.wait
        for _ in range(3):
            activity.look_at_tasks()
        answer.set()


def test_a_source_that_does_not_return_from_reading_is_a_stall() -> None:
    example = Example().run()
    example.reading = time.monotonic()
    example.clock.ahead = 11
    stall = example.health.stall()
    assert stall is not None
    assert (stall.node, stall.reason) == ("numbers", "its source does not return from reading")


def test_a_stopping_run_is_judged_by_its_shutdown_budget_only() -> None:
    example = Example().run()
    with example.writing():
        example.progress.set_stopping()
        example.clock.ahead = 11
        assert example.health.stall() is None


def test_a_stall_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    example = Example().run()
    settings = Settings(progress_deadline_secs=1)
    health = Health(example.progress, 1, clock=example.clock)
    with ProgressWatch(health, settings):
        with example.writing():
            example.clock.ahead = 2
            until(lambda: "no progress" in caplog.text)
            time.sleep(0.4)
        until(lambda: "progress again" in caplog.text)
    assert caplog.text.count("made no progress") == 1


def test_a_run_that_fails_after_a_stall_does_not_go_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    example = Example().run()
    health = Health(example.progress, 1, clock=example.clock)
    with ProgressWatch(health, Settings(progress_deadline_secs=1)):
        with example.writing():
            example.clock.ahead = 2
            until(lambda: "no progress" in caplog.text)
            example.progress.set_failure(TransientError(NO_PROGRESS, "no answer"))
        time.sleep(0.4)
    assert "progress again" not in caplog.text


def test_after_the_second_deadline_the_run_is_given_up() -> None:
    example = Example().run()
    given_up: list[TransientError] = []
    ended = threading.Event()

    def give_up(error: TransientError) -> None:
        given_up.append(error)
        ended.set()

    health = Health(example.progress, 100, clock=example.clock)
    with ProgressWatch(health, Settings(progress_deadline_secs=100, progress_exit_secs=1), give_up):
        with example.writing():
            example.clock.ahead = 2
            assert ended.wait(10)
    (error,) = given_up
    assert (error.condition, error.node) == (NO_PROGRESS, "out")
    assert "writing epoch 7 does not end" in error.message


def test_tasks_that_end_are_noticed_before_a_run_is_given_up() -> None:
    """Also if `progress_exit_secs` is much shorter than the deadline."""
    example = Example().run()
    numbers = itertools.count()
    example.progress.activity.count_tasks = lambda: next(numbers)
    given_up: list[TransientError] = []
    health = Health(example.progress, 100)
    with ProgressWatch(health, Settings(progress_deadline_secs=100, progress_exit_secs=1), given_up.append):
        with example.writing():
            time.sleep(2.5)
    assert given_up == []
