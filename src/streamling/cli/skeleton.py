"""A pipeline to start from, made from the options models: every field is explained, required ones have values.

A field of a model may have its own sample (`Field(examples=[..])`). Otherwise a sample is made from its name or its
type, so that kinds of plugins get skeletons as well.
"""

from __future__ import annotations

import json
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamling.connector import Kind
from streamling.spec.duration import format_duration
from streamling.spec.field_words import default_of, type_name, type_of
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import NodeOptions

_COMMANDS = "# Check this pipeline with `streamling validate {file}`, run it with `streamling run {file}`."
_MARKS = "# A line like '# name: value' is an optional field with its default or a sample. Remove the '#' to set it."
_WIDTH = 110
# Realistic samples for fields with these names.
_NAMED: Mapping[str, object] = {
    "agg_table": "orders_by_day",
    "backend_entity_name": "watched",
    "batch_size": 1000,
    "dead_letter": {"type": "file", "path": "out/dead-letters"},
    "filter": "id > 100",
    "headers": {"X-Team": "data"},
    "landing_table": "orders_landing",
    "num_records_before_stop": 1000,
    "path": "data/orders",
    "primary_key": "id",
    "rate": 100,
    "schema": "public",
    "script": "function each(row) {\n  return row;\n}",
    "table": "orders",
    "telemetry": {"labels": {"team": "data"}},
    "table_name": "orders",
    "topic": "orders",
    "topic_name": "orders",
    "url": "https://example.com/rows",
}
# Sinks get other samples than sources, or a pipeline would read its own output.
_WRITTEN: Mapping[str, str] = {"path": "out/{name}", "table": "{name}", "topic": "{name}"}
# Fields that are not required, but useful in a first pipeline.
_FILLED: Mapping[tuple[Role, str], Mapping[str, object]] = {
    (Role.SOURCE, "generator"): {
        "rows": 20,
        "columns": {
            "id": "id",
            "customer": "concat('c-', id % 5)",
            "amount": "round(random() * 100, 2)",
            "ordered_at": "now()",
        },
    },
}
_NAMES = {(Role.SOURCE, "generator"): "orders", (Role.TRANSFORM, "sql"): "selected", (Role.SINK, "print"): "screen"}
_SQL = "SELECT * FROM {name}"
_FIRST_SQL = "SELECT id, customer, amount, ordered_at\nFROM {name}\nWHERE amount > 20"


@dataclass(frozen=True, slots=True)
class _SkeletonNode:
    kind: Kind
    name: str


def skeleton(kinds: Sequence[Kind], file: str = "pipeline.yaml") -> str:
    """The text of a pipeline with a node of each kind; each node reads the one before it."""
    nodes = _name_nodes(kinds)
    lines = [_COMMANDS.format(file=file if file != "-" else "FILE")]
    if (limits := limitation(kinds)) is not None:
        lines += _comment(f"{limits[0].upper()}{limits[1:]}.", "")
    lines.append(_MARKS)
    readable: _SkeletonNode | None = None
    for role in Role:
        chosen = [node for node in nodes if node.kind.role is role]
        if chosen:
            lines += ["", f"{role.section}:"]
        for position, node in enumerate(chosen):
            lines += [""] if position else []
            lines += _node(node, readable)
            options = node.kind.options
            if role is not Role.SINK and options.namespace == NodeOptions.namespace and not options.joined:
                readable = node
    return "\n".join(lines) + "\n"


def limitation(kinds: Sequence[Kind]) -> str | None:
    """A sentence about the kinds that cannot run yet; None if all can."""
    names = list(dict.fromkeys(f"{kind.name} {kind.role.value}" for kind in kinds if not kind.runs))
    return f"the {' and the '.join(names)} can be validated, but not run in this version" if names else None


def _name_nodes(kinds: Sequence[Kind]) -> list[_SkeletonNode]:
    """A name for each node, from its kind; with a number if the name is taken."""
    nodes: list[_SkeletonNode] = []
    words = {Role.SOURCE: "input", Role.TRANSFORM: "step", Role.SINK: "output"}
    for kind in kinds:
        word = re.sub(r"[^a-z0-9]+", "_", kind.name.lower()).strip("_")
        base = _NAMES.get((kind.role, kind.name), f"{word}_{words[kind.role]}")
        namesakes = sum(node.name == base or node.name.startswith(f"{base}_") for node in nodes)
        nodes.append(_SkeletonNode(kind, f"{base}_{namesakes + 1}" if namesakes else base))
    return nodes


def _node(node: _SkeletonNode, reads: _SkeletonNode | None) -> Iterator[str]:
    """The lines of a node: its description, then its fields, required ones first."""
    kind = node.kind
    yield from _comment(kind.about, "  ")
    yield f"  {node.name}:"
    yield f"    type: {kind.name}"
    filled = {**_FILLED.get((kind.role, kind.name), {}), **kind.samples}
    if kind.role is Role.SINK and kind.built_in:
        required = {name for name, field in kind.options.model_fields.items() if field.is_required()}
        filled |= {field: text.format(name=node.name) for field, text in _WRITTEN.items() if field in required}
    if kind.role is Role.SOURCE and kind.built_in:  # for sinks and transforms that need a key
        filled.setdefault("primary_key", "id")
    fields = [(field.alias or name, field) for name, field in kind.options.model_fields.items() if name != "type"]
    # Required fields come first, those that all nodes share come last.
    common = NodeOptions.model_fields
    order = {name: (not (field.is_required() or name in filled), name in common) for name, field in fields}
    for name, field in sorted(fields, key=lambda item: order[item[0]]):
        yield ""
        needed = field.is_required() or name in filled
        yield from _comment(_about(field), "    ")
        value = filled.get(name, _needed(name, field, reads) if needed else _usual(name, field))
        yield from _entry(name, value, "    " if needed else "    # ", "    ")


def _about(field: FieldInfo) -> str:
    default = default_of(field)
    words = default if default == "required" else f"default {default}" if default != "none" else "optional"
    return f"{field.description or ''} ({type_of(field)}; {words})".replace("`", "").strip()


def _needed(name: str, field: FieldInfo, reads: _SkeletonNode | None) -> object:
    if name == "from" and reads is not None:
        return reads.name
    if name == "sql" and reads is not None:
        first = (reads.kind.role, reads.kind.name) in _FILLED
        return (_FIRST_SQL if first else _SQL).format(name=reads.name)
    return sample(name, field)


def _usual(name: str, field: FieldInfo) -> object:
    """The default, or a sample where there is none."""
    default = field.get_default(call_default_factory=True)
    if name == "options" and default == {}:  # the plugin has not declared its options
        return default
    empty = default is None or default in ((), {}) or (name in _NAMED and isinstance(default, BaseModel))
    return sample(name, field) if empty else default


def sample(name: str, field: FieldInfo) -> object:
    """A value that the field accepts."""
    if field.examples:
        return field.examples[0]
    is_map = type_name(field.annotation).startswith("map")
    if name in _NAMED and isinstance(_NAMED[name], dict) is is_map:
        return _NAMED[name]
    least = max((int(v) for m in field.metadata if (v := getattr(m, "ge", None)) is not None), default=1)
    return _of_type(field.annotation, name, least)


def _of_type(annotation: Any, name: str, least: int = 1) -> object:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _of_type(next(a for a in arguments if a is not types.NoneType), name, least)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        inner = _of_type(arguments[0], name, least)
        return inner if isinstance(inner, str) else [inner]
    if origin is dict:
        return {"id": _of_type(arguments[1], name, least)}
    if hasattr(annotation, "__metadata__"):
        return _of_type(arguments[0], name, least)
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            fields = annotation.model_fields.items()
            return {f.alias or n: sample(f.alias or n, f) for n, f in fields if f.is_required()}
        if issubclass(annotation, Enum):
            return next(iter(annotation)).value
        plain: dict[type, object] = {bool: True, int: max(least, 1), float: 1.0, timedelta: timedelta(seconds=1)}
        if annotation in plain:
            return plain[annotation]
        if annotation.__name__ == "DataType":
            return "string"
    return name.replace("_", "-")


# YAML

_PLAIN = re.compile(r"[A-Za-z_./][\w./()\-+*%>< ]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def _entry(name: str, value: object, lead: str, indent: str) -> Iterator[str]:
    """A key and its value. Texts of several lines become a block, maps get a line for each entry."""
    inner = lead + "  "
    if isinstance(value, str) and "\n" in value:
        yield f"{lead}{name}: |"
        yield from (f"{inner}{line}" for line in value.split("\n"))
    elif isinstance(value, dict) and value and lead == indent and all(isinstance(v, str) for v in value.values()):
        yield f"{lead}{name}:"
        yield from (f"{inner}{key}: {_inline(text)}" for key, text in value.items())
    else:
        yield f"{lead}{name}: {_inline(value)}"


def _inline(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Enum():
            return _inline(value.value)
        case timedelta():
            return format_duration(value)
        case BaseModel():
            return _inline({f.alias or n: getattr(value, n) for n, f in type(value).model_fields.items()})
        case dict():
            return "{" + ", ".join(f"{key}: {_inline(inner)}" for key, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS and value == value.strip():
            return value
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
