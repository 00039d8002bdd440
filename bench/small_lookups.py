"""Small epochs with and without a lookup or a dynamic table, in one process: they take turns, so all of them meet the
same load. CPU time is that of Python and Java; the server's is not in it."""

from __future__ import annotations

import logging
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.figure import Figure
from streamling import Session

_PIPELINE = """\
sources:
  orders:
    type: file
    path: '{orders}'
    format: csv
    mode: {{type: bounded}}
    primary_key: id
    schema: {{id: int64, customer: string}}
transforms:
  {tables}
  shouted: {{type: sql, primary_key: id, sql: "{sql}"}}
sinks:
  out: {{type: blackhole, from: shouted}}
"""
_PLAIN = "SELECT id, upper(customer) AS customer FROM orders WHERE id % 10 <> 0"
_JOIN = "SELECT o.id, upper(o.customer) AS customer, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.code"
_CHECK = f"{_PLAIN} AND dynamic_table_check('known', customer)"
_LOOKUP = (
    "customers: {{type: lookup, path: '{path}', format: csv, primary_key: code, "
    "schema: {{code: string, name: string}}}}"
)
_MEMORY = "known: {type: dynamic_table, backend_type: InMemory, backend_entity_name: known}"
_POSTGRES = "known: {type: dynamic_table, backend_type: Postgres, schema: public, backend_entity_name: small_known}"
_EPOCHS, _EPOCH_ROWS, _ROUNDS = 30, 100, 3
_LARGE_ROWS = 200_000
# Of each turn, the first epochs open connections and create views.
_SKIPPED = 10
_FINALIZED = re.compile(r"Epoch finalized: number=\d+ rows=(\d+) ms=(\d+)")
_WARM_UP_TURNS = 1


@dataclass(slots=True)
class _Turns:
    """The milliseconds of each epoch by the log; the milliseconds of CPU per epoch, of each turn."""

    ms: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class _Epochs(logging.Handler):
    """Collects the times of epochs from the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.ms: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        if match := _FINALIZED.search(record.getMessage()):
            self.ms.append(int(match[2]))


def small_lookups(settings: Mapping[str, Any]) -> Iterator[Figure]:
    """`settings` name the Postgres server."""
    with tempfile.TemporaryDirectory(prefix="streamling-lookups-") as directory:
        small, large = Path(directory, "small.csv"), Path(directory, "large.csv")
        orders = Path(directory, "orders.csv")
        orders.write_text("id,customer\n" + "".join(f"{n},c-{n % 300}\n" for n in range(_EPOCHS * _EPOCH_ROWS)))
        for path, rows in ((small, 300), (large, _LARGE_ROWS)):
            path.write_text("code,name\n" + "".join(f"c-{n},name of {n}\n" for n in range(rows)))
        pipelines = {
            "nothing": ("", _PLAIN),
            "a lookup of 300 rows": (_LOOKUP.format(path=small), _JOIN),
            f"a lookup of {_LARGE_ROWS:,} rows": (_LOOKUP.format(path=large), _JOIN),
            "a dynamic table in memory": (_MEMORY, _CHECK),
            "a dynamic table in Postgres": (_POSTGRES, _CHECK),
        }
        texts = {
            name: _PIPELINE.format(orders=orders, tables=tables, sql=sql) for name, (tables, sql) in pipelines.items()
        }
        took = _take_turns(texts, settings)
    plain = took["nothing"]
    for name, turns in took.items():
        ms, cpu = statistics.median(turns.ms), statistics.median(turns.cpu)
        more = ms - statistics.median(plain.ms)
        compared = f"{more:+.0f} ms; CPU {cpu:.0f} ms, {cpu - statistics.median(plain.cpu):+.0f}"
        yield Figure(f"small epoch with {name}", f"{ms:.0f} ms", compared, "+ <= 40 ms", more <= 40)


def _take_turns(pipelines: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, _Turns]:
    took = {name: _Turns() for name in pipelines}
    epoch = {"rows": _EPOCH_ROWS, "driver_rows": _EPOCH_ROWS}
    own = {"state_backend": {"backend_type": "InMemory"}, "record_batch_interval_ms": 1, "epoch": epoch}
    log = logging.getLogger("streamling")
    log.setLevel(logging.INFO)
    with Session({**settings, **own}) as session:
        for number in range(_WARM_UP_TURNS + _ROUNDS):
            for name, text in pipelines.items():
                epochs, cpu = _Epochs(), _cpu_ms()
                log.addHandler(epochs)
                try:
                    session.run(text)
                finally:
                    log.removeHandler(epochs)
                if number >= _WARM_UP_TURNS:
                    took[name].ms += epochs.ms[_SKIPPED:]
                    took[name].cpu.append((_cpu_ms() - cpu) / _EPOCHS)
    return took


def _cpu_ms() -> float:
    """Of this process and of Java."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True)) if process.is_running()]
    return sum(one.user + one.system for one in times) * 1000
