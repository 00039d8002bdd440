"""The metrics of epochs: what is in flight, and how fast rows come."""

from __future__ import annotations

import time

import pytest

from streamling.connector import Epoch
from streamling.engine.protocol.epoch_metrics import COORDINATOR, EpochMetrics
from streamling.engine.protocol.epoch_times import EpochWatch
from streamling.engine.protocol.overdue import OverdueWatch
from streamling.engine.protocol.progress import Progress
from streamling.telemetry.meters import NodeMeter, RowCounts
from streamling.telemetry.metrics import Metrics
from support.doubles import LedgerSink, NumberSource, Rig, plan_of, until

KEY = "numbers:"


def gauge(metrics: Metrics, name: str, node: str) -> float:
    (value,) = [
        one.value for one in metrics.snapshot() if one.name == f"streamling_{name}" and ("id", node) in one.labels
    ]
    return value


def in_flight(metrics: Metrics) -> float:
    return gauge(metrics, "checkpoint_epochs_in_flight", COORDINATOR)


def test_a_rate_begins_with_the_run_not_with_the_end_of_its_first_epoch() -> None:
    """The rows of the first epoch would seem to have come in the moment in which they are counted."""
    plan, metrics, progress = plan_of(["numbers"], ["out"]), Metrics(), Progress()
    progress.set_plan(plan, metrics)
    epoch_metrics = EpochMetrics(plan, progress.meter, metrics, "app")
    time.sleep(0.5)
    (source,) = plan.sources
    progress.meter(source.id).count(RowCounts(rows_out=1000))
    epoch_metrics.finalized(EpochWatch().times(1, 1000, {}))
    assert 0 < gauge(metrics, "output_rows_rate", "numbers") <= 2000


def test_an_epoch_that_is_open_for_too_long_counts_once_whatever_takes_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    epoch_metrics = EpochMetrics(plan_of(["numbers"], ["out"]), lambda id_: NodeMeter({}), metrics, "app")

    def overdue() -> float:
        found = [m.value for m in metrics.snapshot() if m.name == "streamling_checkpoint_epochs_failed"]
        return sum(found)

    with OverdueWatch(epoch_metrics, overdue_s=0.2, check_s=0.01):
        epoch_metrics.begin(1)
        epoch_metrics.given_up()
        time.sleep(0.4)
        assert overdue() == 0
        epoch_metrics.begin(7)
        until(lambda: overdue() == 1)
        time.sleep(0.1)
        assert overdue() == 1
    assert caplog.messages == ["epoch 7 has been open for more than 0 s"]


def test_an_epoch_that_another_process_has_taken_over_is_not_in_flight() -> None:
    """This process has nothing to do from then on: an alert would say for ever that an epoch does not end."""
    sink, metrics = LedgerSink(), Metrics()
    rig = Rig({"numbers": NumberSource("numbers", there=5)}, {"out": sink}, metrics=metrics)
    begun: list[float] = []

    def other_owner_delivers(epoch: Epoch) -> None:
        begun.append(in_flight(metrics))
        rig.store.exchange({}, {KEY: {"next": 5}}, [key for key in rig.store.items() if key.startswith("__pending")])
        sink.positions[KEY] = {"next": 5}

    sink.before_commit = other_owner_delivers
    loop = rig.run()
    assert loop.epochs == 0
    assert (begun, in_flight(metrics)) == ([1], 0)
    assert loop._context.activity.failing_since("out") is None, "it would count from now on, however long it is idle"
