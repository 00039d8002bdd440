"""`file`: rows as Parquet, JSON lines or CSV files in a directory.

Delivery: exactly once. Writers stage files under `_streamling/`, where readers of the directory do not look. The
commit appends one entry to a log beside them (see `commit_log`), which moves the sink's positions and names the
files; then the files are renamed into place. A replayed epoch finds its entry and writes nothing; a process that was
taken over finds the entry of the other process and is fenced. Files of one epoch appear one after the other.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from streamling.connector import (
    Applied,
    Epoch,
    Guarantee,
    Json,
    Kind,
    Placement,
    Report,
    Sink,
    SinkCapabilities,
    SinkContext,
    Slice,
    Task,
    batch_policy,
    compare_positions,
    register,
)
from streamling.disk import disk_errors, local_path, safe_name, sync_directory
from streamling.errors import INVALID_VALUE, STATE_MOVED, Fenced
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.sinks.file.commit_log import CommitEntry, CommitLog, Move
from streamling.spec.duration import Duration, parse_duration
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Batched, Parallel, SinkOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
FileFormat = Literal["parquet", "json", "csv"]
_ENDINGS: dict[FileFormat, str] = {"parquet": "parquet", "json": "jsonl", "csv": "csv"}
_HIDDEN = "_streamling"
_NOT_IN_CSV = ("list", "struct", "map")
# A process that staged files and has not committed them for so long has ended.
_MAX_STAGED_S = 24 * 3600.0


_NO_ENTRY = CommitEntry(0, "", "", {})


class FileOptions(Batched, Parallel, SinkOptions):
    """Files that appear whole, each row in exactly one of them."""

    identity_labels = ("path",)

    path: str = Field(min_length=1, description="Directory; created if missing.")
    format: FileFormat = Field(description="`parquet`, `json` (one object per line) or `csv` (with a header line).")
    batch_size: int | None = Field(default=100_000, ge=1, description="Rows to wait for before a file is written.")
    batch_flush_interval: Duration | None = Field(
        default=parse_duration("5s"), description="Longest wait before rows appear in a file."
    )

    def example_file(self, node: NodeSpec) -> str:
        name = _final_name(safe_name(node.ref), 1, "0" * 32, 0, self.format)
        return os.path.normpath(local_path(self.path) / name)

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        nested = [column.name for column in columns if column.type.kind in _NOT_IN_CSV]
        if self.format == "csv" and nested:
            message = f"csv cannot hold the nested columns {', '.join(nested)}"
            hint = "use parquet or json, or leave the columns out in a sql transform"
            yield node.error(INVALID_VALUE, message, "format", hint=hint)


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Stages one file per task; it counts once its epoch is committed."""

    node: str
    staging: str
    format: FileFormat
    columns: Schema

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        non_empty = (batch for batch in batches if batch.num_rows)
        first = next(non_empty, None)
        if first is None:
            return Report(0)
        with disk_errors(self.node):
            return self._write(epoch, task, first, non_empty)

    def _write(self, epoch: Epoch, task: Task, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Report:
        from streamling.sinks.file.encoders import open_encoder

        directory = Path(self.staging) / epoch.id
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{task.partition:05d}-{task.attempt}.{_ENDINGS[self.format]}"
        rows = 0
        with (directory / name).open("wb") as file:
            encoder = open_encoder(self.format, file, first.schema, self.columns)
            for batch in chain([first], rest):
                encoder.write(batch)
                rows += batch.num_rows
            encoder.close()
            file.flush()
            os.fsync(file.fileno())
        sync_directory(directory)
        sync_directory(directory.parent)
        final = _final_name(self.node, epoch.number, epoch.id, task.partition, self.format)
        return Report(rows, detail=[f"{epoch.id}/{name}", final])


def _final_name(node: str, epoch: int, epoch_id: str, partition: int, format_: FileFormat) -> str:
    return f"{node}-{epoch:08d}-{epoch_id[:8]}-{partition:05d}.{_ENDINGS[format_]}"


@dataclass(frozen=True, slots=True)
class _OpenDirectory:
    """What `open` makes: the directory for staged files, the commit log, and the columns of the rows."""

    staging: Path
    log: CommitLog
    columns: Schema


class FileSink(Sink):
    def __init__(self, node: NodeSpec, options: FileOptions) -> None:
        self.capabilities = SinkCapabilities(Placement.ANY, Guarantee.EXACTLY_ONCE, batch=batch_policy(options))
        self._node = node
        self._options = options
        self._target = local_path(options.path)
        self.target: str | None = str(self._target)
        self._name = safe_name(node.ref)
        self._open_directory: _OpenDirectory | None = None

    def open(self, context: SinkContext) -> None:
        home = self._target / _HIDDEN / self._name / context.generation
        directory = _OpenDirectory(home / "staging", CommitLog(home / "log"), context.schema)
        self._open_directory = directory
        with disk_errors(self._node):
            fresh = not home.exists() and _has_other_generations(home.parent)
            directory.staging.mkdir(parents=True, exist_ok=True)
            self._move_files(directory.log.entries())
            self._sweep()
        if fresh:
            log.warning(
                "%s: %s has files that were written with another state; rows that are now read from the beginning are "
                "written again beside them. Empty the directory, or restore that state",
                self._node.described(),
                self._target,
            )

    @property
    def _directory(self) -> _OpenDirectory:
        if self._open_directory is None:
            raise AssertionError("not opened")
        return self._open_directory

    def applied(self, slices: Sequence[Slice]) -> Applied:
        with disk_errors(self._node):
            return compare_positions(self._head().positions, slices)

    def abandon(self, epoch: Epoch) -> Applied:
        with disk_errors(self._node):
            while True:
                head = self._head()
                applied = compare_positions(head.positions, epoch.slices)
                if applied is not Applied.NO or epoch.id in head.abandoned:
                    break
                abandoned = {**head.abandoned, epoch.id: [s.key for s in epoch.slices]}
                mark = secrets.token_hex(16)
                if self._directory.log.append(
                    CommitEntry(head.number + 1, mark, head.epoch, head.positions, (), abandoned)
                ):
                    break
        if applied is Applied.NO:
            self._unstage(epoch)  # no process can commit it any more
        return applied

    def ledger(self) -> Mapping[str, Json]:
        with disk_errors(self._node):
            return self._head().positions

    def rewind(self, positions: Mapping[str, Json]) -> None:
        with disk_errors(self._node):
            while True:
                head = self._head()
                rewound = {**head.positions, **positions}
                mark = secrets.token_hex(16)
                if self._directory.log.append(CommitEntry(head.number + 1, mark, head.epoch, rewound)):
                    return

    def writer(self) -> FileWriter:
        return FileWriter(self._name, str(self._directory.staging), self._options.format, self._directory.columns)

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        moves = tuple(Move(str(r.detail[0]), str(r.detail[1])) for r in reports if isinstance(r.detail, list))
        with disk_errors(self._node):
            fresh = self._log_commit(epoch, moves)
            # Files of other processes too: one that logged an epoch may have died before it moved its files.
            self._move_files(self._directory.log.entries())
            self._directory.log.prune()
        self._unstage(epoch)
        return sum(report.rows for report in reports) if fresh else 0

    def _log_commit(self, epoch: Epoch, moves: tuple[Move, ...]) -> bool:
        """Append the epoch's entry; False if another epoch has already committed these slices."""
        while True:
            entries = self._directory.log.entries()
            if any(entry.epoch == epoch.id for entry in entries):
                return True  # ours, from a commit that failed after this point
            head = entries[-1] if entries else _NO_ENTRY
            applied = compare_positions(head.positions, epoch.slices)
            if applied is Applied.YES:
                return False
            if applied is Applied.UNKNOWN or epoch.id in head.abandoned:
                raise Fenced(
                    STATE_MOVED,
                    f"{self._node.described()}: another process has taken over these rows",
                    node=self._node.name,
                )
            ends = {s.key: s.end for s in epoch.slices}
            abandoned = {id_: keys for id_, keys in head.abandoned.items() if ends.keys().isdisjoint(keys)}
            entry = CommitEntry(head.number + 1, epoch.id, head.epoch, {**head.positions, **ends}, moves, abandoned)
            if self._directory.log.append(entry):
                return True

    def abort(self, epoch: Epoch) -> None:
        with disk_errors(self._node):
            logged = any(entry.epoch == epoch.id for entry in self._directory.log.entries())
        if not logged:  # otherwise it is committed, and its files still have to be moved
            self._unstage(epoch)

    def _unstage(self, epoch: Epoch) -> None:
        shutil.rmtree(self._directory.staging / epoch.id, ignore_errors=True)

    def _head(self) -> CommitEntry:
        entries = self._directory.log.entries()
        return entries[-1] if entries else _NO_ENTRY

    def _move_files(self, entries: Sequence[CommitEntry]) -> None:
        """Move the files of committed epochs into place. Another process may do so too: a missing file was moved."""
        moves = [move for entry in entries for move in entry.moves]
        for move in moves:
            try:
                (self._directory.staging / move.staged).rename(self._target / move.final)
            except FileNotFoundError:
                continue
        sync_directory(self._target)
        for epoch in {Path(move.staged).parent for move in moves}:
            shutil.rmtree(self._directory.staging / epoch, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove files that were staged long ago and never committed."""
        for directory in self._directory.staging.iterdir():
            with suppress(FileNotFoundError):  # its owner has just committed it
                if time.time() - directory.stat().st_mtime > _MAX_STAGED_S:
                    shutil.rmtree(directory, ignore_errors=True)


def _has_other_generations(homes: Path) -> bool:
    """Whether the sink has committed files here under another generation."""
    return any(homes.glob("*/log/*.json"))


def _build(node: NodeSpec, settings: Settings) -> FileSink:
    if not isinstance(node.options, FileOptions):
        raise TypeError(node.options)
    return FileSink(node, node.options)


# Another directory than the one that the sample of a file source reads.
register(Kind(Role.SINK, "file", FileOptions, _build, samples={"path": "out/orders"}))
