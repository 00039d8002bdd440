"""Samples of rows: credits, what is stored, and what subscribers get."""

from __future__ import annotations

import json

from streamling.telemetry.inspection import Sample, Samples


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rows(*values: int) -> list[str]:
    return [json.dumps({"id": value}) for value in values]


def ids(samples: list[Sample]) -> list[tuple[str, int]]:
    return [(sample.node, json.loads(sample.row)["id"]) for sample in samples]


def test_a_node_has_so_many_credits_and_gets_them_back_with_the_age_of_its_rows() -> None:
    clock = Clock()
    samples = Samples(["a", "b"], 3, 30, clock=clock)
    assert (samples.wanted("a"), samples.wanted("b"), samples.wanted("unknown")) == (3, 3, 0)
    samples.add("a", rows(1, 2))
    clock.now += 10
    samples.add("a", rows(3))
    assert (samples.wanted("a"), samples.wanted("b")) == (0, 3)
    samples.add("a", rows(4))
    assert ids(samples.stored()) == [("a", 3), ("a", 2), ("a", 1)]
    clock.now += 20
    assert samples.wanted("a") == 2
    samples.add("a", rows(5))
    assert samples.wanted("a") == 1
    assert ids(samples.stored()) == [("a", 5), ("a", 3), ("a", 2)]
    clock.now += 60
    assert samples.wanted("a") == 3


def test_of_more_rows_than_credits_the_newest_are_stored() -> None:
    samples = Samples(["a"], 2, 30)
    samples.add("a", rows(1, 2, 3, 4))
    assert ids(samples.stored()) == [("a", 4), ("a", 3)]


def test_without_rows_per_node_nothing_is_wanted() -> None:
    samples = Samples(["a"], 0, 30)
    samples.add("a", rows(1))
    assert (samples.wanted("a"), samples.stored()) == (0, [])


def test_a_subscriber_gets_what_is_stored_and_then_what_is_added_of_its_nodes() -> None:
    woken: list[int] = []
    samples = Samples(["a", "b"], 5, 30)
    samples.add("a", rows(1))
    samples.add("b", rows(2))
    stored, subscription = samples.subscribe(["b"], lambda: woken.append(1))
    assert ids(stored) == [("b", 2)]
    samples.add("a", rows(3))
    assert (subscription.take(), woken) == ([], [])
    samples.add("b", rows(4, 5))
    assert (ids(subscription.take()), len(woken)) == ([("b", 4), ("b", 5)], 1)
    subscription.close()
    samples.add("b", rows(6))
    assert subscription.take() == []


def test_a_subscriber_that_does_not_take_its_rows_falls_behind_and_the_others_do_not() -> None:
    clock = Clock()
    samples = Samples(["a", "b"], 2, 30, clock=clock)
    _, slow = samples.subscribe()
    _, quick = samples.subscribe()
    taken = 0
    for number in range(4):
        samples.add("a", rows(number, number))
        taken += len(quick.take())
        clock.now += 30
    assert (slow.fallen_behind, slow.take(), quick.fallen_behind, taken) == (True, [], False, 8)


def test_a_sample_is_an_event_with_every_digit_of_the_row() -> None:
    row = '{"id":123456789012345678901234567890.10,"text":"\\u2028 \\" ü"}'
    assert Sample('n"', row).event() == f'{{"topology_node_key":"n\\"","data":{row}}}'


def test_the_rows_of_many_nodes_are_shorter_so_that_all_of_them_need_little_memory() -> None:
    few, many = Samples(["a"], 15, 30), Samples([f"n{n}" for n in range(500)], 15, 30)
    assert few.longest_row == 64 << 10
    assert many.longest_row * 500 * 15 <= 64 << 20
    assert Samples(["a"], 1_000_000, 30).longest_row == 1024


def test_a_row_that_is_added_although_it_is_too_long_is_not_stored() -> None:
    samples = Samples(["a"], 3, 30)
    samples.add("a", [json.dumps({"text": "x" * 1_000_000})])
    (stored,) = samples.stored()
    assert set(json.loads(stored.row)) == {"_truncated"}
    assert len(stored.row) < 2000
