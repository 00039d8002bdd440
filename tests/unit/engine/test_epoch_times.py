"""Where the time of an epoch went."""

from __future__ import annotations

import time

from streamling.engine.protocol.epoch_times import EpochWatch


def test_time_for_samples_is_not_time_for_finalizing() -> None:
    watch = EpochWatch()
    time.sleep(0.05)
    watch.flushed_s = 0.01
    watch.inspected_s = 0.03
    times = watch.times(1, 10, {})
    assert times.inspect_ms == 30
    assert times.finalize_ms == round(times.total_ms - 40, 3)
