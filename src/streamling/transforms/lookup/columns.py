"""Which columns a lookup may declare: neither Arrow nor a client library is needed."""

from __future__ import annotations

import re

from streamling.plan.types import DataType

_SCHEMES = ("s3", "s3a", "gs")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_WILD = re.compile(r"[*?\[]")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_PLAIN = frozenset((*_INTEGERS, "boolean", "float32", "float64", "string", "date32", "timestamp"))


def path_fault(path: str) -> str | None:
    """What is wrong with the path of a lookup; continues a sentence that begins with the field's name."""
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1] not in _SCHEMES:
        accepted = ", ".join(f"{name}://" for name in _SCHEMES)
        return f"has the unsupported scheme '{scheme[1]}'; accepted: {accepted} and local paths"
    if path.endswith("/") or (_WILD.search(path) and scheme is None):
        return "must be one file, not a directory or a pattern: only one file can be replaced as a whole"
    return None


def file_schema_fault(format_: object, type_: DataType) -> str | None:
    """Why a column of this type cannot be declared for a file."""
    if format_ == "parquet":
        return "is not allowed with format parquet: the file contains the types of its columns"
    return _fault(type_, "text files cannot contain")


def query_schema_fault(type_: DataType) -> str | None:
    """Why a column of this type cannot be declared for a query."""
    return None if type_.kind == "binary" else _fault(type_, "a lookup does not read from Postgres")


def _fault(type_: DataType, why: str) -> str | None:
    fits = type_.kind in _PLAIN or (type_.kind == "decimal" and not type_.wide)
    return None if fits else f"is {type_}, which {why}; use string"
