"""File sources over files of a test, read as the engine does it: offer by offer, part by part."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamling.connector import BadRow, Counted, Json, Offer, Reached, Room, kinds
from streamling.sources.file.columns import columns_of
from streamling.sources.file.source import FileSource
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings

Row = dict[str, Any]
PLENTY = Room(1_000_000, parts=4, part_rows=10_000)


def file_source(
    path: Path | str,
    format_: str,
    mode: str = "bounded",
    more: str = "",
    like: Path | None = None,
    read: Collection[str] | None = None,
) -> FileSource:
    """A source called `Events`, planned with the columns of what is there, or of `like`; not opened."""
    fields = f"type: file, path: {json.dumps(str(path))}, format: {format_}, mode: {{type: {mode}}}{more}"
    text = f"sources: {{Events: {{{fields}}}}}\nsinks: {{out: {{type: blackhole, from: events}}}}"
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert not pipeline.problems, pipeline.problems
    made = kinds.build(pipeline.sources[0], Settings())
    assert isinstance(made, FileSource)
    columns = columns_of(str(like or path), format_)
    made.prepare(columns, columns.names if read is None else read)
    return made


def opened(
    path: Path | str,
    format_: str,
    positions: Mapping[str, Json] | None = None,
    *,
    mode: str = "bounded",
    more: str = "",
) -> FileSource:
    made = file_source(path, format_, mode, more)
    made.open(positions or {})
    return made


def read(source: FileSource, offer: Offer | None) -> list[pa.RecordBatch | BadRow]:
    """What the parts of an offer hold, read by a copy of the reader as an executor has it."""
    assert offer is not None
    reader = pickle.loads(pickle.dumps(source.reader()))
    found = []
    for slice_ in offer.slices:
        for part in json.loads(json.dumps(slice_.parts)):
            for item in reader.read(part):
                if isinstance(item, Reached):
                    continue
                if isinstance(item, Counted):
                    source.count({item.what: item.count})
                    continue
                if not isinstance(item, BadRow):
                    assert item.schema.names == list(source.columns.names)
                    assert 0 < item.num_rows <= 50_000
                found.append(item)
    return found


def rows_in(items: list[pa.RecordBatch | BadRow]) -> list[Row]:
    return [row for item in items if not isinstance(item, BadRow) for row in item.to_pylist()]


def bad_in(items: list[pa.RecordBatch | BadRow]) -> list[BadRow]:
    return [item for item in items if isinstance(item, BadRow)]


def everything(source: FileSource, room: Room = PLENTY) -> list[pa.RecordBatch | BadRow]:
    """All that an opened source has at the moment."""
    found = []
    while (offer := source.offer(room)) is not None:
        found += read(source, offer)
    return found


def rows_of(path: Path | str, format_: str, **how: Any) -> list[Row]:
    """All rows of a bounded source over these files."""
    return rows_in(everything(opened(path, format_, **how)))
