"""`file`: the rows of files in a directory or an object store.

Delivery: a slice has parts of files, each with the size and modification time of its file and the offsets between which
it lies. A replay gives the same rows; a file that has changed or disappeared since is an error, never other rows. The
files that are finished, and the position inside the file that is partly read, are stored with every epoch. Files that
arrive late are read, wherever their name or time would sort them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from streamling.connector import Discovery, Kind, register
from streamling.errors import PRIMARY_KEY, TYPE_INFERRED, Caution, StreamlingError
from streamling.plan.contract import Finding, Key
from streamling.plan.types import FLOAT64, OPERATION_COLUMN, DataType, Schema
from streamling.plan.written_columns import DeclaredColumns
from streamling.sources.file.listing import matches
from streamling.sources.file.source import FileSource
from streamling.spec.duration import Duration, parse_duration
from streamling.spec.faults import invalid_value, wrong_type
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Keyed, Options, Parallel, SourceOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    from streamling.sources.file.guesses import Change

SCHEMES = ("s3", "s3a", "gs")
_IN_TEXT = frozenset(
    ("boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
) | {"decimal", "string", "date32", "timestamp"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Bounded(Options):
    """Lists the files once, reads each of them once and ends."""

    type: Literal["bounded"] = Field(description="Lists the files once, reads each of them once and ends.")


class Continuous(Options):
    """Lists the files again and again, and reads new and changed ones."""

    type: Literal["continuous"] = Field(description="Lists again and again, and reads new and changed files.")
    poll_interval: Duration = Field(
        default=parse_duration("5s"), description="Pause after a listing without new or changed files."
    )


def _as_map(value: object) -> object:
    if isinstance(value, str):
        known = value if value in ("bounded", "continuous") else "bounded"
        raise wrong_type(f"must be a map, not text; write mode: {{type: {known}}}")
    return value


FileMode = Annotated[Annotated[Bounded | Continuous, Field(discriminator="type")], BeforeValidator(_as_map)]


class ReadsFiles(Options):
    """Mix-in: which files are read, and how."""

    path: str = Field(min_length=1, description="File, directory or pattern: local, `s3://`, `s3a://` or `gs://`.")
    format: Literal["parquet", "csv", "json", "ndjson", "jsonl", "avro"] = Field(
        description="Format of the files. The three JSON names mean the same: one object per line."
    )

    @field_validator("path")
    @classmethod
    def _check_scheme(cls, path: str) -> str:
        scheme = _SCHEME.match(path)
        if scheme is not None and scheme[1] not in SCHEMES:
            accepted = ", ".join(f"{name}://" for name in SCHEMES)
            raise invalid_value(f"has the unsupported scheme '{scheme[1]}'; accepted: {accepted} and local paths")
        return path


class InfersColumns(ReadsFiles):
    """Mix-in: the columns are those of the files."""

    schema_: DeclaredColumns | None = Field(
        default=None,
        alias="schema",
        description="Types of columns in csv and json files that are not to be inferred from the first rows. Other "
        "columns are inferred as usual.",
    )

    @field_validator("schema_")
    @classmethod
    def _check_schema(cls, columns: dict[str, DataType] | None, info: ValidationInfo) -> dict[str, DataType] | None:
        format_ = info.data.get("format")
        if columns is not None and format_ in ("parquet", "avro"):
            raise invalid_value(f"is not allowed with format {format_}: its files contain the types of their columns")
        for name, type_ in (columns or {}).items():
            if format_ == "csv" and type_.kind in ("list", "map", "struct"):
                raise invalid_value(f"is {type_}, which csv files cannot contain; use string", field=name)
            for leaf in leaves_not_in_text(type_):
                inside = "" if leaf is type_ else f", which has {leaf}"
                raise invalid_value(f"is {type_}{inside}, which text files cannot contain; use string", field=name)
        return columns


class FileSourceOptions(InfersColumns, Parallel, Keyed, SourceOptions):
    """Reads files. Columns come from the files that exist at the start; `key=value` directories become columns too."""

    identity_labels = ("path",)

    mode: FileMode = Field(
        default=Continuous(type="continuous"),
        description="`{type: bounded}` reads the files that exist and ends; `{type: continuous}` lists again every "
        "`poll_interval`.",
    )

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        inferred = self.format not in ("parquet", "avro")
        for name in self.own_key if inferred else ():
            column = columns.get(name)
            if column is not None and column.type == FLOAT64 and name not in (self.schema_ or {}):
                message = f"the key column '{name}' is float64 by its values; different numbers may be equal as floats"
                hint = f"set the type of '{name}' in 'schema' of the source, for instance string or decimal(38,9)"
                yield node.error(PRIMARY_KEY, message, "primary_key", hint=hint)

    @property
    def ends(self) -> bool:
        return isinstance(self.mode, Bounded)

    @property
    def carries_changes(self) -> bool:
        """As far as `schema` tells; a probe finds out whether the files have operations."""
        return OPERATION_COLUMN in (self.schema_ or {})

    def would_read(self, file: str) -> bool:
        return matches(self.path, self.format, file)


def leaves_not_in_text(type_: DataType) -> Iterator[DataType]:
    """The types inside of a type that text files cannot contain."""
    return (leaf for leaf in _leaves(type_) if leaf.kind not in _IN_TEXT)


def _leaves(type_: DataType) -> Iterator[DataType]:
    """The types inside of structs and lists. A map is not looked into: it cannot be read from a file."""
    inner = [f.type for f in type_.fields] if type_.kind == "struct" else [type_.item] if type_.kind == "list" else []
    if not inner:
        yield type_
    for one in inner:
        if one is not None:
            yield from _leaves(one)


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = node.options
    if not isinstance(options, FileSourceOptions):
        raise TypeError(options)
    return probe_files(node, options)


def probe_files(node: NodeSpec, options: InfersColumns, *path: str | int) -> Discovery:
    """The columns of the files. `path`: where the options are in the node."""
    from streamling.sources.file.columns import look_up_columns

    changes: list[Change] = []
    try:
        columns, has_operations = look_up_columns(options.path, options.format, options.schema_ or {}, changes.append)
    except StreamlingError as error:
        raise type(error)(
            error.condition,
            f"{node.described()}: {error.message}",
            node=node.name,
            where=node.locate(*path, "path"),
            hint=error.hint,
        ) from error
    cautions = tuple(inferred_caution(node, change) for change in changes)
    return Discovery(columns, cautions=cautions, carries_changes=has_operations)


def inferred_caution(node: NodeSpec, change: Change, owner: str = "source") -> Caution:
    """The warning about a column whose first values do not have the type that they seem to have."""
    from streamling.formats.arrow import logical_type

    inferred, type_ = (logical_type(type_, change.column) for type_ in (change.inferred, change.type))
    if type_ == inferred:
        message = f"column '{change.column}' is {type_}, and rows like the one with {change.example} are bad rows"
    else:
        message = f"column '{change.column}' is {type_}: as {inferred}, {change.example} would be another value"
    return node.caution(TYPE_INFERRED, message, "path", hint=f"set the type of the column in 'schema' of the {owner}")


def _build(node: NodeSpec, settings: Settings) -> FileSource:
    options = node.options
    if not isinstance(options, FileSourceOptions):
        raise TypeError(options)
    poll_s = options.mode.poll_interval.total_seconds() if isinstance(options.mode, Continuous) else None
    return FileSource(
        node=node.ref,
        name=node.name,
        path=options.path,
        format_=options.format,
        poll_s=poll_s,
        parallelism=options.parallelism,
        declared=frozenset(options.schema_ or ()),
    )


register(Kind(Role.SOURCE, "file", FileSourceOptions, _build, probe=_probe))
