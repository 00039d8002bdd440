"""`file`: rows as Parquet, JSON lines or CSV files in a directory.

Delivery: exactly once. Writers stage files under `_streamling/`, where readers of the directory do not look. The
commit appends one entry to a log beside them (see `commit_log`), which moves the sink's positions and names the
files; then the files are renamed into place. A replayed epoch finds its entry and writes nothing; a process that was
taken over finds the entry of the other process, or its staged files removed, and is fenced. Every attempt stages files
of new names, so a retry never changes a file that is committed. Files of one epoch appear one after the other.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from streamling.errors import INVALID_VALUE, SINK_FAILED, STATE_MOVED, Fenced, PermanentError, TransientError
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.sinks.file.commit_log import NO_ENTRY, CommitEntry, CommitLog, Move
from streamling.sinks.file.staging import Staging
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
    """The name of the sink."""
    prefix: str
    """The same as a part of file names."""
    staging: str
    """The directory of the process for staged files."""
    log: str
    """The directory of the commit log."""
    format: FileFormat
    columns: Schema

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        non_empty = (batch for batch in batches if batch.num_rows)
        first = next(non_empty, None)
        if first is None:
            return Report(0)
        with disk_errors(self.node):
            try:
                return self._write(epoch, task, first, non_empty)
            except FileNotFoundError as error:
                raise self._missing(epoch, error) from error

    def _write(self, epoch: Epoch, task: Task, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Report:
        from streamling.sinks.file.encoders import open_encoder

        directory = Path(self.staging) / epoch.id
        directory.mkdir(exist_ok=True)
        # A name that no other attempt has: the file of an earlier one may be committed already.
        name = f"{task.partition:05d}-{task.attempt}-{secrets.token_hex(4)}.{_ENDINGS[self.format]}"
        rows = 0
        with (directory / name).open("xb") as file:
            encoder = open_encoder(self.format, file, first.schema, self.columns, self.node)
            for batch in chain([first], rest):
                encoder.write(batch)
                rows += batch.num_rows
            encoder.close()
            file.flush()
            os.fsync(file.fileno())
        sync_directory(directory)
        sync_directory(directory.parent)
        final = _final_name(self.prefix, epoch.number, epoch.id, task.partition, self.format)
        return Report(rows, detail=[f"{directory.parent.name}/{epoch.id}/{name}", final])

    def _missing(self, epoch: Epoch, error: OSError) -> Fenced | TransientError | PermanentError:
        """The error for staged files that disappear: the next owner has removed them, or something else has."""
        if CommitLog(Path(self.log)).head().excludes(epoch):
            return _fenced(self.node)
        root = Path(self.staging).parent
        if root.is_dir():
            return staged_files_gone(self.node, root, error)
        return PermanentError(
            SINK_FAILED,
            f"{self.node}: there is no directory '{root}'",
            node=self.node,
            hint="do not remove it during a run; on a cluster, 'path' must be the same storage for all hosts",
            cause=error,
        )


def _fenced(node: str) -> Fenced:
    return Fenced(STATE_MOVED, f"sink '{node}': another process has taken over these rows", node=node)


def staged_files_gone(node: str, path: Path, cause: OSError | None = None) -> TransientError:
    text = f"sink '{node}': staged files are gone, and the epoch is written again: {path}"
    return TransientError(SINK_FAILED, text, node=node, cause=cause)


def _final_name(node: str, epoch: int, epoch_id: str, partition: int, format_: FileFormat) -> str:
    return f"{node}-{epoch:08d}-{epoch_id[:8]}-{partition:05d}.{_ENDINGS[format_]}"


@dataclass(frozen=True, slots=True)
class _OpenDirectory:
    """What `open` makes: the directory for staged files, the commit log, and the columns of the rows."""

    staging: Staging
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
        with disk_errors(self._node):
            fresh = not home.exists() and _has_other_generations(home.parent)
            staging = Staging(home / "staging")
            log_ = CommitLog(home / "log", drafts=staging.directory)
            self._open_directory = _OpenDirectory(staging, log_, context.schema)
            with staging.dead_owners():
                self._move_files(log_.entries())
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
            return compare_positions(self._directory.log.head().positions, slices)

    def abandon(self, epoch: Epoch) -> Applied:
        with disk_errors(self._node):
            while True:
                head = self._directory.log.head()
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
            self._directory.staging.remove_everywhere(epoch.id)  # no process can commit it any more
        return applied

    def ledger(self) -> Mapping[str, Json]:
        with disk_errors(self._node):
            return self._directory.log.head().positions

    def rewind(self, positions: Mapping[str, Json]) -> None:
        with disk_errors(self._node):
            while True:
                head = self._directory.log.head()
                rewound = {**head.positions, **positions}
                mark = secrets.token_hex(16)
                if self._directory.log.append(CommitEntry(head.number + 1, mark, head.epoch, rewound)):
                    return

    def writer(self) -> FileWriter:
        directory = self._directory
        return FileWriter(
            node=self._node.name,
            prefix=self._name,
            staging=str(directory.staging.directory),
            log=str(directory.log.directory),
            format=self._options.format,
            columns=directory.columns,
        )

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        moves = tuple(Move(str(r.detail[0]), str(r.detail[1])) for r in reports if isinstance(r.detail, list))
        with disk_errors(self._node):
            self._log_commit(epoch, moves)
            # Files of other processes too: one that logged an epoch may have died before it moved its files.
            self._move_files(self._directory.log.entries())
            self._directory.log.prune()
        self._directory.staging.remove(epoch.id)
        return sum(report.rows for report in reports)

    def _log_commit(self, epoch: Epoch, moves: tuple[Move, ...]) -> None:
        """Append the epoch's entry, unless another epoch has already committed these slices."""
        while True:
            entries = self._directory.log.entries()
            if any(entry.epoch == epoch.id for entry in entries):
                return  # ours, from a commit that failed after this point
            head = entries[-1] if entries else NO_ENTRY
            applied = compare_positions(head.positions, epoch.slices)
            if applied is Applied.YES:
                return
            if head.excludes(epoch):
                raise _fenced(self._node.name)
            self._check_staged(moves)
            ends = {s.key: s.end for s in epoch.slices}
            abandoned = {id_: keys for id_, keys in head.abandoned.items() if ends.keys().isdisjoint(keys)}
            entry = CommitEntry(head.number + 1, epoch.id, head.epoch, {**head.positions, **ends}, moves, abandoned)
            if self._directory.log.append(entry):
                return

    def _check_staged(self, moves: Iterable[Move]) -> None:
        """Raise TransientError unless all files are there: once they are in the log, a missing file counts as moved."""
        for move in moves:
            staged = self._directory.staging.root / move.staged
            if not staged.is_file():
                raise staged_files_gone(self._node.name, staged)

    def abort(self, epoch: Epoch) -> None:
        with disk_errors(self._node):
            logged = any(entry.epoch == epoch.id for entry in self._directory.log.entries())
            self._directory.staging.restore()
        if not logged:  # otherwise it is committed, and its files still have to be moved
            self._directory.staging.remove(epoch.id)

    def close(self) -> None:
        if self._open_directory is not None:
            self._open_directory.staging.close()

    def _move_files(self, entries: Sequence[CommitEntry]) -> None:
        """Move the files of committed epochs into place. Another process may do so too: a missing file was moved."""
        moves = [move for entry in entries for move in entry.moves]
        for move in moves:
            try:
                (self._directory.staging.root / move.staged).rename(self._target / move.final)
            except FileNotFoundError:
                continue
        sync_directory(self._target)
        for epoch in {Path(move.staged).parent for move in moves}:
            shutil.rmtree(self._directory.staging.root / epoch, ignore_errors=True)


def _has_other_generations(homes: Path) -> bool:
    """Whether the sink has committed files here under another generation."""
    return any(homes.glob("*/log/*.json"))


def _build(node: NodeSpec, settings: Settings) -> FileSink:
    if not isinstance(node.options, FileOptions):
        raise TypeError(node.options)
    return FileSink(node, node.options)


# Another directory than the one that the sample of a file source reads.
register(Kind(Role.SINK, "file", FileOptions, _build, samples={"path": "out/orders"}))
