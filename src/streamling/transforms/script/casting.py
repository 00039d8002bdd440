"""Generates the JavaScript that makes rows of columns, calls the script, and makes columns of what it returns.

The code depends only on the schemas. Columns cross as typed arrays and texts, never as JSON; nested values are built
from the columns inside of them. `incoming.py` writes what this code reads, `outgoing.py` reads what it writes: all
three walk the types in the same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from streamling.plan.types import STRING, DataType, Field, Schema

OUTPUT_BYTES = 16 << 20
EXACT_DIGITS = 15
"""Decimals of up to so many digits are numbers in a script, others are text."""
BATCH_FUNCTION = "__streamling_batch"
INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
LONGS = {"int64": ("LEAST", "MOST", "B64"), "uint64": ("0n", "18446744073709551615n", "U64")}
FLOATS = ("float16", "float32", "float64")
MOMENTS = ("date32", "date64", "timestamp")
SPANS = ("time32", "time64", "duration")
DECIMALS = ("decimal", "decimal_arb")
TEXTS = ("string", "interval")
_DAY_MS = 86_400_000
_NATIVE = {"u256": (0, 2**256 - 1), "i256": (-(2**255), 2**255 - 1)}
# What every object inherits: a column of such a name must be the object's own.
_INHERITED = re.compile(
    r"constructor|hasOwnProperty|isPrototypeOf|propertyIsEnumerable|toLocaleString|toString|valueOf|__.*__"
)
_SAMPLED_ROWS = 10


def batch_program(
    input_: Schema, output: Schema, *, columns: Collection[str], strict_keys: bool, may_wait: bool
) -> str:
    """A function of the tools of the prelude and the function of the script; it returns the function that processes a
    batch.

    columns       the input columns that the script gets
    strict_keys   whether returned keys that are not columns are reported
    may_wait      whether the script might return a promise
    """
    reading = _Reading()
    fields = [f for f in input_ if f.name in columns]
    members = ", ".join(f"{_key(f.name)}: {reading.value(f.type, 'i')}" for f in fields)
    writing = _Writing()
    for column in output:
        writing.member(column.type, "o", column.name, column.name, 0)
    levels = range(len(writing.levels))
    known = json.dumps({f.name: 1 for f in (*input_, *output)})
    return _BATCH.format(
        name=BATCH_FUNCTION,
        readers="\n".join(reading.functions),
        reader_variables="".join(f"let {name};" for name in reading.variables),
        decode="\n".join(reading.decode),
        members=members,
        writers="\n".join(writing.functions),
        slots="".join(f"let {slot.name};" for slot in writing.slots),
        wides="".join(f"const {name} = {{values: null, type: {type_}}};" for name, type_, _ in writing.wides),
        levels="".join(f"let k{n} = 0, cap{n} = 0, b{n} = 0;" for n in levels),
        grow="\n".join(_grow(writing, n) for n in levels),
        first="".join(f"k{n} = 0; cap{n} = {'n + 16' if n == 0 else '64'}; make{n}();" for n in levels),
        mark="".join(f"b{n} = k{n};" for n in levels),
        undo="".join(_undo(writing, n) for n in levels),
        promise="if (o instanceof P) throw wrong(o);" if may_wait else "",
        sample=f"if (k0 < {_SAMPLED_ROWS}) extraKeys(o, known);" if strict_keys else "",
        known=known,
        write="\n".join(writing.body),
        trim="".join(f"{s.name}.length = k{s.level};" for s in writing.slots if s.type == "text"),
        counts=", ".join(f"k{n}" for n in levels),
        flags="".join(f", {name}.values === null ? 0 : 1" for name, _, _ in writing.wides),
        packed=", ".join(
            [f"view({s.name}, 0, k{s.level})" for s in writing.slots if s.type != "text"]
            + [
                f"{name}.values === null ? new Bytes(0) : view({name}.values, 0, k{level})"
                for name, _, level in writing.wides
            ]
        ),
        texts=", ".join(s.name for s in writing.slots if s.type == "text"),
        limit=OUTPUT_BYTES,
    )


_BATCH = """
(function (tools, script) {{
"use strict";
const {{state, isArray, begin, int, numbers, codes, offsets, strings, binaries, own, toFloat, toInt, toLong,
  toBool, toText, toDecimal, inside, toMoment, toSpan, toBytes, toList, toEntries, toObject, enlarge, wrong, fail,
  isFatal, beyond, none,
  extraKeys, reset, pack, lengthsOf, view, fill, put, hasOwn, out, P, F64, I32, Bytes, B64, U64, MOST, LEAST,
  Int16Array, micros}} = tools;
const BOOL = [false, true, null], known = {known};
{reader_variables}
{readers}
{slots}
{wides}
{levels}
{grow}
{writers}
let source, texts;
function {name}(buffer, ...strings_) {{
  begin(buffer, strings_);
  const n = int(), stop = int();
  reset(int(), int());
{decode}
  {first}
  texts = null;
  for (let i = 0; i < n; i++) {{
    state[0] = i;
    {mark}
    try {{
      const r = script({{{members}}});
      if (r === null) continue;
      if (typeof r !== "object") throw wrong(r);
      const many = isArray(r), count = many ? r.length : 1;
      for (let j = 0; j < count; j++) {{
        const o = many ? r[j] : r;
        if (many) {{
          if (o === null) continue;
          if (typeof o !== "object" || isArray(o)) throw wrong(o);
        }}
        {promise}
        {sample}
        if (k0 === cap0) grow0();
        source[k0] = i;
        let v;
{write}
        k0++;
      }}
    }} catch (e) {{
      if (isFatal(e)) throw e;
      {undo}
      fail(i, e);
      if (stop) break;
    }}
  }}
  {trim}
  texts = [{texts}];
  return pack([{counts}{flags}], [view(source, 0, k0), {packed}], texts, {{rows: source, count: k0}}, {limit});
}}
return {{batch: {name}, lengths: () => lengthsOf(texts), out}};
}})
"""


@dataclass
class _Reading:
    """Expressions that read a value at an index, and the statements that prepare them for a batch."""

    decode: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)

    def value(self, type_: DataType, index: str) -> str:
        match form_of(type_):
            case "null":
                return "null"
            case "boolean":
                return f"BOOL[{self._column('codes()')}[{index}]]"
            case "number":
                return f"{self._column('numbers()')}[{index}]"
            case "text":
                return f"{self._column('strings()')}[{index}]"
            case "binary":
                return f"{self._column('binaries()')}[{index}]"
            case "struct":
                absent = self._column("codes()")
                inner = ", ".join(f"{_key(f.name)}: {self.value(f.type, 'i')}" for f in type_.fields)
                return self._function(f"return {absent}[i] ? null : {{{inner}}};", index)
            case "list":
                absent, ends = self._column("codes()"), self._column("offsets()")
                item = self.value(type_.item or STRING, "j")
                return self._function(
                    f"if ({absent}[i]) return null; const a = [];"
                    f"for (let j = {ends}[i], n = 0, end = {ends}[i + 1]; j < end; j++) a[n++] = {item}; return a;",
                    index,
                )
            case "map":
                return self._map(type_, index)
        raise AssertionError(f"a script cannot read {type_}")

    def _map(self, type_: DataType, index: str) -> str:
        absent, ends = self._column("codes()"), self._column("offsets()")
        key, item = self.value(type_.key or STRING, "j"), self.value(type_.item or STRING, "j")
        begin, add = ("const o = {}", f"own(o, {key}, {item})")
        if (type_.key or STRING).kind not in TEXTS:
            begin, add = "const o = []", f"o[n++] = [{key}, {item}]"
        loop = f"for (let j = {ends}[i], n = 0, end = {ends}[i + 1]; j < end; j++) {add};"
        return self._function(f"if ({absent}[i]) return null; {begin}; {loop} return o;", index)

    def _column(self, call: str) -> str:
        name = f"c{len(self.variables)}"
        self.variables.append(name)
        self.decode.append(f"  {name} = {call};")
        return name

    def _function(self, body: str, index: str) -> str:
        name = f"r{len(self.functions)}"
        self.functions.append(f"function {name}(i) {{ {body} }}")
        return f"{name}({index})"


@dataclass(frozen=True)
class _Slot:
    """An array that gets one value per row of a level."""

    name: str
    type: str
    level: int


@dataclass
class _Writing:
    """Statements that write a value at the next index of a level. Level 0 are the rows; every list has its own."""

    body: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)
    wides: list[tuple[str, str, int]] = field(default_factory=list)
    levels: list[int] = field(default_factory=lambda: [0])

    def member(self, type_: DataType, owner: str, name: str, path: str, level: int) -> None:
        """Write a member of the object in the variable `owner`."""
        read = f"{owner}[{_text(name)}]" if name != "__proto__" else f'{owner}["__proto__"]'
        if _INHERITED.fullmatch(name):
            read = f"(hasOwn({owner}, {_text(name)}) ? {read} : null)"
        self.body.append(f"v = {read};")
        self.value(type_, path, level)

    def value(self, type_: DataType, path: str, level: int) -> None:
        """Write the value in the variable `v`."""
        k, column, called = f"k{level}", _text(path), _text(str(type_))
        kind = type_.kind
        if kind == "null":
            return
        if kind == "boolean":
            self.body.append(f"{self._slot('Bytes', level)}[{k}] = v === true ? 1 : v === false ? 0 : toBool(v);")
        elif kind in FLOATS:
            data, mask = self._slot("F64", level), self._slot("Bytes", level)
            self.body.append(f'{data}[{k}] = typeof v === "number" ? v : toFloat(v, {mask}, {k});')
        elif kind in INTEGERS:
            data, mask = self._slot("F64", level), self._slot("Bytes", level)
            least, most = INTEGERS[kind]
            inside = "" if kind == "int32" else f" && v >= {least} && v <= {most}"
            self.body.append(
                f'{data}[{k}] = typeof v === "number" && (v | 0) === v{inside} ? v '
                f": toInt(v, {least}, {most}, {mask}, {k});"
            )
        elif kind in LONGS:
            data, mask = self._slot("F64", level), self._slot("Bytes", level)
            least_, most_, array = LONGS[kind]
            wide = f"w{len(self.wides)}"
            self.wides.append((wide, array, level))
            inside = "" if kind == "int64" else " && v >= 0"
            self.body.append(
                f'{data}[{k}] = typeof v === "number" && (v | 0) === v{inside} ? v '
                f": toLong(v, {least_}, {most_}, {mask}, {k}, {wide});"
            )
        elif kind in TEXTS:
            text, mask = self._slot("text", level), self._slot("Bytes", level)
            self.body.append(f'{text}[{k}] = typeof v === "string" ? v : toText(v, {mask}, {k}, {column});')
        elif kind in DECIMALS:
            text, mask = self._slot("text", level), self._slot("Bytes", level)
            limits = f"{type_.precision}, {type_.scale}"
            value = f"toDecimal(v, {limits}, {mask}, {k}, {column}, {called})"
            if type_.native is not None:
                lowest, highest = _NATIVE[type_.native]
                value = f"inside({value}, {lowest}n, {highest}n, v, {column}, {called})"
            self.body.append(f"{text}[{k}] = {value};")
        elif kind in MOMENTS or kind in SPANS:
            data, rest, mask = (self._slot(t, level) for t in ("F64", "Int16Array", "Bytes"))
            most_ms = 0 if kind == "duration" else _DAY_MS
            cast = f"toMoment(v, {mask}" if kind in MOMENTS else f"toSpan(v, {most_ms}, {mask}"
            self.body.append(f"{data}[{k}] = {cast}, {k}, {column}, {called}); {rest}[{k}] = micros();")
        elif kind == "binary":
            self._binary(type_, path, level)
        elif kind == "struct":
            self._struct(type_, path, level)
        else:
            self._items(type_, path, level)

    def _binary(self, type_: DataType, path: str, level: int) -> None:
        sizes, inner = self._slot("I32", level), self._level()
        data = self._slot("Bytes", inner)
        length = -1 if type_.length is None else type_.length
        self.functions.append(
            f"function f{inner}(v, k) {{ const b = toBytes(v, {length}, {_text(path)}, {_text(str(type_))});"
            f"if (b === null) {{ {sizes}[k] = -1; return; }}"
            f"while (k{inner} + b.length > cap{inner}) grow{inner}();"
            f"put({data}, b, k{inner}); k{inner} += b.length; {sizes}[k] = b.length; }}"
        )
        self.body.append(f"f{inner}(v, k{level});")

    def _struct(self, type_: DataType, path: str, level: int) -> None:
        absent = self._slot("Bytes", level)
        name = f"s{len(self.functions)}_{len(self.slots)}"
        outer, self.body = self.body, []
        for inner in type_.fields:
            self.member(inner.type, "o", inner.name, f"{path}.{inner.name}", level)
        lines = "\n".join(self.body)
        self.body = outer
        self.functions.append(
            f"const {name}_none = {{}}; function {name}(v, k) {{ let o = {name}_none;"
            f"if (v === null || v === undefined) {absent}[k] = 1;"
            f"else o = toObject(v, {_text(path)}, {_text(str(type_))}); {lines} }}"
        )
        self.body.append(f"{name}(v, k{level});")

    def _items(self, type_: DataType, path: str, level: int) -> None:
        """A list, or a map as a list of pairs."""
        sizes, inner = self._slot("I32", level), self._level()
        outer, self.body = self.body, []
        if type_.kind == "map":
            self.body.append("v = pair[0];")
            self.value(type_.key or STRING, f"{path}{{}}", inner)
            self.body.append("v = pair[1];")
            self.value(type_.item or STRING, f"{path}{{}}", inner)
        else:
            self.value(type_.item or STRING, f"{path}[]", inner)
        lines = "\n".join(self.body)
        self.body = outer
        make, take = ("toEntries", "const pair = items[j];") if type_.kind == "map" else ("toList", "v = items[j];")
        check = 'if (pair[0] === null || pair[0] === undefined) throw new Error("a key of a map is null");'
        self.functions.append(
            f"function f{inner}(v, k) {{ if (v === null || v === undefined) {{ {sizes}[k] = -1; return; }}"
            f"const items = {make}(v, {_text(path)}, {_text(str(type_))}), size = items.length;"
            f"for (let j = 0; j < size; j++) {{ if (k{inner} === cap{inner}) grow{inner}();"
            f"{take} {check if type_.kind == 'map' else ''} {lines} k{inner}++; }} {sizes}[k] = size; }}"
        )
        self.body.append(f"f{inner}(v, k{level});")

    def _slot(self, type_: str, level: int) -> str:
        slot = _Slot(f"o{len(self.slots)}", type_, level)
        self.slots.append(slot)
        return slot.name

    def _level(self) -> int:
        self.levels.append(len(self.levels))
        return self.levels[-1]


def _grow(writing: _Writing, level: int) -> str:
    """Functions that make the arrays of a level, and larger ones."""
    slots = [s for s in writing.slots if s.level == level]
    typed = [("source", "I32")] * (level == 0) + [(s.name, s.type) for s in slots if s.type != "text"]
    wides = [name for name, _, at in writing.wides if at == level]
    made = "".join(f"{name} = new {type_}(cap{level});" for name, type_ in typed)
    made += "".join(f"{s.name} = [];" for s in slots if s.type == "text")
    made += "".join(f"{name}.values = null;" for name in wides)
    grown = "".join(f"{name} = enlarge({name}, cap{level});" for name, _ in typed)
    grown += "".join(
        f"if ({name}.values !== null) {name}.values = enlarge({name}.values, cap{level});" for name in wides
    )
    return (
        f"function make{level}() {{ {made} }}\n"
        f"function grow{level}() {{ if (cap{level} > {OUTPUT_BYTES}) throw beyond(); cap{level} *= 2; {grown} }}"
    )


def _undo(writing: _Writing, level: int) -> str:
    """Forget what a failed row has written: the next row writes every array again, except the marks of nulls."""
    marks = [s.name for s in writing.slots if s.level == level and s.type == "Bytes"]
    return "".join(f"fill({name}, 0, b{level}, k{level} + 1);" for name in marks) + f"k{level} = b{level};"


def form_of(type_: DataType) -> str:
    """How values of a type cross into a script."""
    kind = type_.kind
    if kind in ("null", "boolean", "binary", "struct", "list", "map"):
        return kind
    if kind in TEXTS or (kind in DECIMALS and (kind == "decimal_arb" or (type_.precision or 0) > EXACT_DIGITS)):
        return "text"
    return "number"


def _text(value: str) -> str:
    return json.dumps(value)


def _key(name: str) -> str:
    """A name in an object literal; `__proto__` would set the prototype."""
    return f"[{_text(name)}]" if name == "__proto__" else _text(name)


def crossing_fields(schema: Schema, columns: Collection[str]) -> list[Field]:
    """The input columns that cross, in order."""
    return [f for f in schema if f.name in columns]
