"""A lookup from one file. It is read as it is at one moment: a file that changes meanwhile is read again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamling.connector import BadRow, Discovery
from streamling.connector.lookup import MOST_BYTES, Lookup
from streamling.errors import (
    FILE_CHANGED,
    LOOKUP,
    SCHEMA_NOT_FOUND,
    PermanentError,
    StreamlingError,
    TransientError,
    UserError,
)
from streamling.plan.types import OPERATION_COLUMN, OPERATION_FIELD, DataType, Schema
from streamling.sources.file import inferred_caution
from streamling.sources.file.listing import SourceFile, file_system
from streamling.sources.file.reader import format_module
from streamling.sources.file.storage import check_unchanged, storage_errors
from streamling.spec.mask import mask_url
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sources.file.guesses import Change
    from streamling.sources.file.rows import RowShape

log = logging.getLogger(__name__)

_PART_ROWS = 1 << 40
_PART_BYTES = 16 << 20
# A process that writes a file in place does so without longer pauses.
_STABLE_S = 1.0
# A file that never rests is read all the same after this time.
_RESTLESS_S = 10.0
_ATTEMPTS = 3


def look_up_file_columns(node: NodeSpec, path: str, format_: str, declared: Mapping[str, DataType]) -> Discovery:
    """The columns of the file. Raises UserError or PermanentError."""
    from streamling.sources.file.columns import look_up_columns

    changes: list[Change] = []
    try:
        _current(path)
        columns, has_operations = look_up_columns(path, format_, declared, changes.append)
    except StreamlingError as error:
        raise type(error)(
            error.condition,
            f"{node.described()}: {error.message}",
            node=node.name,
            where=node.locate("path"),
            hint="set the type of the column in 'schema' of the lookup" if error.hint else None,
        ) from error
    fields = tuple(f for f in columns if has_operations or f.name != OPERATION_COLUMN)
    return Discovery(Schema(fields), cautions=tuple(inferred_caution(node, change, "lookup") for change in changes))


class FileLookup(Lookup):
    """Reads the file again if its size or its time has changed."""

    def __init__(self, name: str, path: str, format_: str, declared: frozenset[str], refresh_s: float) -> None:
        self.refresh_s = refresh_s
        self._name = name
        self._path = path
        self._format = format_
        self._declared = declared
        self._columns = Schema(())
        self._read: SourceFile | None = None
        """The version of the file that was read last."""
        self._seen: tuple[SourceFile, float] | None = None
        """Another version, and since when it is the current one."""
        self._restless_since = 0.0

    def prepare(self, columns: Schema) -> None:
        self._columns = columns

    def may_have_changed(self) -> bool:
        """A local file that was written just now may not be complete: it counts when it has been the same for a
        second."""
        file = _current(self._path)
        if file == self._read:
            self._seen = None
            return False
        now = time.monotonic()
        if self._seen is None:
            self._restless_since = now
        if self._seen is None or self._seen[0] != file:
            self._seen = (file, now)
        old = 0 <= file.modified_ns <= time.time_ns() - _STABLE_S * 1e9
        rests = old or now - self._seen[1] >= _STABLE_S
        return rests or now - self._restless_since >= _RESTLESS_S or "://" in self._path

    def read(self) -> pa.Table:
        for attempts_left in reversed(range(_ATTEMPTS)):
            file = _current(self._path)
            try:
                table = self._table(file)
            except PermanentError as error:
                if error.condition is not FILE_CHANGED:
                    raise
                if not attempts_left:
                    text = f"'{mask_url(self._path)}' changes while it is read"
                    raise TransientError(LOOKUP, text, node=self._name, cause=error) from error
                log.info("lookup %s: '%s' changed while it was read; reading it again", self._name, file.path)
                continue
            self._read, self._seen = file, None
            return table
        raise AssertionError("unreachable")

    def _table(self, file: SourceFile) -> pa.Table:
        import pyarrow as pa

        from streamling.sources.file.rows import RowShape

        shape = RowShape(Schema((*self._columns, OPERATION_FIELD)), self._declared)
        system, _ = file_system(self._path)
        batches: list[pa.RecordBatch] = []
        size = 0
        with storage_errors(file.path), self._content_errors(file):
            with system.open_input_file(file.path) as stream:
                for batch in self._batches(file, stream, shape):
                    batches.append(batch.drop_columns([OPERATION_COLUMN]))
                    size += batch.nbytes
                    self._check_size(size)
            check_unchanged(system, file)
        schema = pa.schema([f for f in shape.schema if f.name != OPERATION_COLUMN])
        return pa.Table.from_batches(batches, schema)

    def _batches(self, file: SourceFile, stream: Any, shape: RowShape) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        module = format_module(self._format)
        cutter, names = module.open_cutter(file, stream, 0, 1, shape)
        self._check_names(file, names)
        while (part := cutter.cut(_PART_ROWS, _PART_BYTES)) is not None:
            for item in module.rows(stream, part, shape):
                if isinstance(item, BadRow):
                    row = item.source.get("row")
                    raise PermanentError(LOOKUP, f"'{file.path}', row {row}: {item.message}", node=self._name)
                if isinstance(item, pa.RecordBatch):
                    yield item

    def _check_names(self, file: SourceFile, names: tuple[str, ...] | None) -> None:
        """The names in a file that has a header; in a JSON file each line has its own."""
        missing = [f.name for f in self._columns if names is not None and f.name not in names]
        if missing:
            message = f"'{file.path}' lacks columns that it had at the start: {', '.join(missing)}"
            raise PermanentError(LOOKUP, message, node=self._name, hint="restart the pipeline to use other columns")

    def _check_size(self, size: int) -> None:
        if size > MOST_BYTES:
            message = f"'{mask_url(self._path)}' has more than {MOST_BYTES >> 20} MB in memory"
            hint = "leave out rows and columns that no query needs"
            raise PermanentError(LOOKUP, message, node=self._name, hint=hint)

    @contextmanager
    def _content_errors(self, file: SourceFile) -> Iterator[None]:
        """Arrow's errors about the content of a file; a file that shrinks while it is read gives them, too."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
            check_unchanged(file_system(self._path)[0], file)
            message = f"'{file.path}' cannot be read as {self._format}: {str(error).splitlines()[0]}"
            raise PermanentError(LOOKUP, message, node=self._name, cause=error) from error


def _current(path: str) -> SourceFile:
    """The file as it is now. Raises UserError if there is none, TransientError or PermanentError."""
    import pyarrow.fs as pafs

    shown = mask_url(path)
    with storage_errors(shown):
        system, inner = file_system(path)
        info = system.get_file_info(inner)
    if info.type == pafs.FileType.NotFound:
        raise UserError(SCHEMA_NOT_FOUND, f"there is no file '{shown}'")
    if info.type != pafs.FileType.File:
        raise UserError(SCHEMA_NOT_FOUND, f"'{shown}' is not a file; a lookup reads one file")
    return SourceFile(inner, info.size or 0, info.mtime_ns or 0)
