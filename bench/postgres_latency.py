"""From the producer to a row that others see in the table, when 200 come every second."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing

from bench.figure import Figure
from bench.orders_topic import place_of, produce, servers
from bench.postgres import connected
from bench.processes import cpu_seconds, pipeline, wait_for

_PIPELINE = """\
sources:
  orders: {{type: kafka, topic: {topic}}}
transforms:
  shouted: {{type: sql, primary_key: id, sql: "SELECT id, upper(customer) AS customer, created FROM orders"}}
sinks:
  out: {{type: postgres, from: shouted, schema: public, table: {table}}}
"""
_RATE = 200
_LOOK_S = 0.005
_WARM_UP_S, _MEASURED_S = 30.0, 30.0
_MEDIAN_BAR_MS = 300


class Onlooker(threading.Thread):
    """Asks the table for new rows all the time, and notes when each was seen."""

    def __init__(self, settings: dict[str, str], table: str) -> None:
        super().__init__(daemon=True)
        self._settings, self._table, self._done = settings, table, threading.Event()
        self.seen: dict[int, tuple[int, float]] = {}
        """By id: when it was produced, in microseconds, and when it was seen, in seconds."""

    def run(self) -> None:
        with closing(connected(self._settings)) as connection:
            last = -1
            while not self._done.wait(_LOOK_S):
                if connection.execute("SELECT to_regclass(%s)", (self._table,)).fetchone() == (None,):
                    continue
                statement = f"SELECT id, created FROM {self._table} WHERE id > %s ORDER BY id"
                rows = connection.execute(statement, (last,)).fetchall()
                now = time.time()
                for id_, created in rows:
                    self.seen[id_] = (created, now)
                    last = id_

    def stop(self) -> None:
        self._done.set()
        self.join()


def postgres_latency() -> Iterator[Figure]:
    """Milliseconds from the producer to a committed row, and the CPU that it takes."""
    table = f"latency_{time.time_ns()}"
    with servers() as stack:
        place = place_of(stack, table.replace("_", "-"))
        onlooker = Onlooker(place.settings, table)
        with pipeline(_PIPELINE.format(topic=place.topic, table=table), place.settings) as (process, _log):
            onlooker.start()
            count = produce(place, _RATE, 1.0)
            wait_for(process, lambda: bool(onlooker.seen), 120)
            count += produce(place, _RATE, _WARM_UP_S, first=count)
            since, before = count, cpu_seconds(process)
            count += produce(place, _RATE, _MEASURED_S, first=count)
            share = (cpu_seconds(process) - before) / _MEASURED_S
            wait_for(process, lambda: len(onlooker.seen) >= count, 30)
        onlooker.stop()
        with closing(connected(place.settings)) as connection:
            connection.execute(f"DROP TABLE {table}")
    taken = [(seen - created / 1e6) * 1000 for id_, (created, seen) in onlooker.seen.items() if id_ >= since]
    median, late = statistics.median(taken), statistics.quantiles(taken, n=100)[98]
    yield Figure(
        f"postgres latency at {_RATE} rows/s, median",
        f"{median:.0f} ms",
        f"99 in 100 within {late:.0f} ms; {share:.0%} of a core",
        f"< {_MEDIAN_BAR_MS} ms",
        median < _MEDIAN_BAR_MS,
    )
