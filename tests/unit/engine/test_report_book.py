"""Reports of readers, processors and writers are counted once, and those of abandoned epochs not at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamling.connector import BadRow, Report
from streamling.connector.reports import combine
from streamling.engine.data.report_book import ReportBook


class LocalAccumulator:
    """Does what Spark's accumulator does with what successful tasks have added."""

    def __init__(self, value: Any, param: Any) -> None:
        self._value, self._param = value, param

    def add(self, term: Any) -> None:
        self._value = self._param.addInPlace(self._value, term)


CONTEXT = SimpleNamespace(accumulator=LocalAccumulator)


def test_reports_of_this_process_and_of_workers_take_one_road() -> None:
    book = ReportBook()
    book.begin("e")
    book.add("e", "here", Report(rows=1))
    sender = book.sender(CONTEXT)
    sender.add({("e", "there", 1, 0): Report(rows=3)})
    sender.add({("e", "there", 0, 0): Report(rows=2)})
    assert book.of("e", "here") == {0: Report(rows=1)}
    assert list(book.of("e", "there").items()) == [(0, Report(rows=2)), (1, Report(rows=3))]
    assert book.of("e", "nobody") == {}


def test_a_run_has_one_sender() -> None:
    book = ReportBook()
    assert book.sender(CONTEXT) is book.sender(CONTEXT)


def test_a_part_that_is_read_twice_counts_once() -> None:
    """A repeated task, or a node that several sinks make Spark compute."""
    book = ReportBook()
    book.begin("e")
    for _ in range(2):
        book.sender(CONTEXT).add({("e", "numbers", 0, 0): Report(rows=5, rejected=1, counts={"skipped": 2})})
        book.sender(CONTEXT).add({("e", "numbers", 1, 0): Report(rows=7, counts={"skipped": 1})})
    whole = combine(book.of("e", "numbers").values())
    assert (whole.rows, whole.rejected, whole.counts) == (12, 1, {"skipped": 3})


def test_a_partition_that_was_written_by_several_attempts_has_the_report_of_each_and_counts_once() -> None:
    book = ReportBook()
    book.begin("e")
    for attempt in (10, 2):
        book.sender(CONTEXT).add({("e", "out", 0, attempt): Report(rows=5, detail=attempt)})
    assert [book.attempt("e", "out", 0, attempt) for attempt in (2, 10, 3)] == [
        Report(rows=5, detail=2),
        Report(rows=5, detail=10),
        None,
    ]
    assert combine(book.of("e", "out").values()).rows == 5


def test_reports_of_an_abandoned_epoch_are_dropped() -> None:
    book = ReportBook()
    book.begin("abandoned")
    book.sender(CONTEXT).add({("abandoned", "numbers", 0, 0): Report(rows=5)})
    book.begin("next")
    assert (len(book), book.of("abandoned", "numbers")) == (0, {})


def test_a_report_that_comes_late_is_not_counted_for_the_next_epoch_and_does_not_stay() -> None:
    book = ReportBook()
    book.begin("abandoned")
    sender = book.sender(CONTEXT)
    book.begin("next")
    sender.add({("abandoned", "numbers", 0, 0): Report(rows=5)})
    sender.add({("next", "numbers", 0, 0): Report(rows=7)})
    assert combine(book.of("next", "numbers").values()).rows == 7
    book.forget("next")
    book.begin("last")
    assert len(book) == 0


def test_what_is_begun_again_keeps_what_it_has() -> None:
    book = ReportBook()
    book.begin("e")
    book.add("e", "numbers", Report(rows=1))
    book.begin("e")
    assert book.of("e", "numbers") == {0: Report(rows=1)}


@pytest.fixture
def restless_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_late_reports_do_not_disturb_the_beginning_of_an_epoch(restless_threads: None) -> None:
    book, over = ReportBook(), threading.Event()
    sender = book.sender(CONTEXT)
    sender.add({("e", "numbers", part, 0): Report() for part in range(20_000)})

    def report() -> None:
        number = 0
        while not over.is_set():
            sender.add({("abandoned", "numbers", number, 0): Report()})
            number += 1

    thread = threading.Thread(target=report)
    thread.start()
    try:
        for _ in range(20):
            book.begin("e")
    finally:
        over.set()
        thread.join()


def test_a_combined_report_adds_up_and_knows_whether_it_has_every_bad_row() -> None:
    bad = BadRow("odd", "odd", {}, raw=b"12345")
    whole = combine([Report(1, 1, (bad,), {"a": 1}, 10), Report(2, 0, (), {"a": 2, "b": 3}, 20)])
    assert whole == Report(3, 1, (bad,), {"a": 3, "b": 3}, 30)
    assert whole.complete
    assert whole.held_bytes == 30 + len(b"12345") + len("odd")
    assert not combine([whole, Report(rejected=1)]).complete
