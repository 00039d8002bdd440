"""Validation errors of pydantic models, reworded for users.

Models raise pydantic's `ValidationError`; its texts never reach a user. Our own validators raise `ValueError`, or
one of `wrong_type`, `missing_field`, `invalid_value` of this module. Their text continues a sentence that begins
with the field's name: `must be at least 1`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from streamling.errors import INVALID_VALUE, MISSING_FIELD, UNKNOWN_FIELD, WRONG_TYPE, Condition
from streamling.spec.mask import is_secretive, mask_url
from streamling.spec.model_shape import ModelShape, Path

_EXPECTED = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "decimal_type": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a map",
    "mapping_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "dataclass_type": "a map",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "none_required": "empty",
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}
_OURS = {"wrong_type": WRONG_TYPE, "missing_field": MISSING_FIELD, "invalid_value": INVALID_VALUE}
_WHOLE = re.compile(r"-?[0-9]{1,18}")
# These words are booleans in YAML 1.1 and text in YAML 1.2.
_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
# Fields of the same meaning that have different names in different nodes and tools: users mix them up.
_ALIASES = (
    ("pass", "password", "passwd"),
    ("user", "username"),
    ("db", "database", "dbname"),
    ("start_at", "starting_offsets"),
    ("data_format", "format"),
    ("table", "table_name"),
    ("fn", "function"),
    ("sql", "query"),
)
# Below this ratio the similarity of two names is a coincidence.
_CLOSE = 0.7
# Names that begin with the same word need less similarity.
_RELATED = 0.6
_FIRST_WORD = re.compile(r"[^\W_]+_")
_PUNCTUATION = re.compile(r"[\W_]+")
MERGE_KEY = "<<"
NOT_MERGED = "'<<' merge keys are not supported; write the fields out, or use an alias for a whole value"


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem of one value. `path` leads to it from the top of the validated map."""

    condition: Condition
    path: Path
    sentence: str
    hint: str | None = None


def wrong_type(text: str, *, field: str | Path | None = None) -> PydanticCustomError:
    """To raise from a validator: the value has the wrong YAML type."""
    return _ours("wrong_type", text, field)


def missing_field(text: str, *, field: str | None = None) -> PydanticCustomError:
    """To raise from a validator: a field is missing that other fields require."""
    return _ours("missing_field", text, field)


def invalid_value(text: str, *, field: str | Path | None = None, hint: str | None = None) -> PydanticCustomError:
    """To raise from a validator. `field` names the wrong field, or leads to it, when the validator checks all of it."""
    return _ours("invalid_value", text, field, hint)


def faults(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """All faults in `error` about a map validated as `model`, one per path and condition."""
    shape = ModelShape.of(model)
    by_place: dict[tuple[Path, str], Fault] = {}
    expected: dict[Path, list[str]] = {}
    for detail in error.errors(include_url=False):
        if (word := _EXPECTED.get(detail["type"])) is not None:
            # Each member of a union reports separately; one sentence covers them all.
            path = shape.path(detail["loc"])
            words = expected.setdefault(path, [])
            if word not in words:
                words.append(word)
            sentence = f"{_subject(path)} must be {_either(words)}, not {_describe_input(path, detail)}"
            fault = Fault(WRONG_TYPE, path, sentence, _type_hint(path, detail))
        else:
            fault = _fault(detail, shape)
        by_place[(fault.path, fault.condition.code)] = fault
    for fault in [fault for fault in by_place.values() if fault.condition is UNKNOWN_FIELD]:
        _drop_consequences(fault, by_place)
    return list(by_place.values())


def _drop_consequences(unknown: Fault, by_place: dict[tuple[Path, str], Fault]) -> None:
    """A misspelt field is also missing under its right name; a merge key may stand for any missing field."""
    around = unknown.path[:-1]
    missing = [f.path for f in by_place.values() if f.condition is MISSING_FIELD and f.path[:-1] == around]
    consequences = missing
    if unknown.path[-1] != MERGE_KEY:
        consequences = [path for path in missing if unknown.hint == f"did you mean '{path[-1]}'?"]
    for path in consequences:
        del by_place[(path, MISSING_FIELD.code)]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant: a typing error, or the name used by another tool."""
    by_folded = {_fold(candidate): candidate for candidate in known}
    for synonyms in _ALIASES:
        accepted = [alias for alias in synonyms if _fold(alias) in by_folded]
        if len(accepted) == 1:
            by_folded |= {_fold(alias): by_folded[_fold(accepted[0])] for alias in synonyms}
    if (same := by_folded.get(_fold(name))) is not None:
        return same
    close = difflib.get_close_matches(_fold(name), by_folded, n=1, cutoff=_CLOSE)
    if not close and (first_word := _FIRST_WORD.match(name.casefold())) is not None:
        related = [folded for folded in by_folded if by_folded[folded].casefold().startswith(first_word[0])]
        close = difflib.get_close_matches(_fold(name), related, n=1, cutoff=_RELATED)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the nearest known name, if one is similar enough."""
    suggestion = nearest(name, known)
    return None if suggestion is None else f"did you mean '{suggestion}'?"


def _fold(name: str) -> str:
    """The name without case and punctuation: `batchSize`, `batch-size` and `batch_size` become the same."""
    return _PUNCTUATION.sub("", name.casefold()) or name


def _ours(code: str, text: str, field: str | Path | None, hint: str | None = None) -> PydanticCustomError:
    # The text goes in as a parameter because pydantic reads braces in a template.
    return PydanticCustomError(code, "{text}", {"text": text, "field": field, "hint": hint})


def _fault(detail: ErrorDetails, shape: ModelShape) -> Fault:
    kind, path = detail["type"], shape.path(detail["loc"])
    context: Mapping[str, object] = detail.get("ctx", {})
    subject = _subject(path)
    match kind:
        case "missing":
            return Fault(MISSING_FIELD, path, f"missing field {subject}")
        case "extra_forbidden":
            path = shape.path_of_unknown(detail["loc"])
            accepted = shape.fields(detail["loc"][:-1])
            if path[-1] == MERGE_KEY:
                return Fault(UNKNOWN_FIELD, path, NOT_MERGED)
            sentence = f"unknown field {_subject(path)}; accepted: {', '.join(accepted)}"
            return Fault(UNKNOWN_FIELD, path, sentence, did_you_mean(str(path[-1]), accepted))
        case "union_tag_not_found":
            return Fault(MISSING_FIELD, path, f"missing field {_subject((*path, _bare(context['discriminator'])))}")
        case "union_tag_invalid":
            tag = (*path, _bare(context["discriminator"]))
            return _not_accepted(tag, str(context["tag"]), _accepted_values(str(context["expected_tags"])))
        case "enum" | "literal_error":
            return _not_accepted(path, detail["input"], _accepted_values(str(context["expected"])))
        case "value_error" | "assertion_error":
            return Fault(INVALID_VALUE, path, f"{subject} {context['error']}" if path else str(context["error"]))
        case "string_too_short" | "too_short":
            least = context["min_length"]
            return Fault(INVALID_VALUE, path, f"{subject} must " + ("not be empty" if least == 1 else f"have {least}"))
        case "string_too_long" | "too_long":
            return Fault(INVALID_VALUE, path, f"{subject} must be no longer than {context['max_length']}")
        case _ if kind in _BOUNDS:
            key, words = _BOUNDS[kind]
            wrong = _describe_input(path, detail)
            return Fault(INVALID_VALUE, path, f"{subject} must be {words} {_plain(context[key])}, not {wrong}")
        case _ if kind in _OURS:
            hint = context.get("hint")
            fault = Fault(_OURS[kind], path, str(context["text"]), hint if isinstance(hint, str) else None)
            if isinstance(field := context.get("field"), str | tuple):
                fault = replace(fault, path=(*path, *((field,) if isinstance(field, str) else field)))
            return replace(fault, sentence=f"{_subject(fault.path)} {fault.sentence}") if fault.path else fault
        case _:
            wrong = _describe_input(path, detail)
            return Fault(INVALID_VALUE, path, f"{subject} has a value that is not accepted: {wrong}")


def _not_accepted(path: Path, value: object, accepted: Sequence[str]) -> Fault:
    hint = did_you_mean(value, accepted) if isinstance(value, str) else None
    sentence = f"{_subject(path)} is {_value(path, value)}; accepted: {', '.join(accepted)}"
    return Fault(INVALID_VALUE, path, sentence, hint)


def _subject(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"'{text}'" if text else "the value"


def _describe_input(path: Path, detail: ErrorDetails) -> str:
    value = detail["input"]
    match value:
        case dict():
            return "a map"
        case list() | tuple():
            return "a list"
        case str():
            return f"text ({_value(path, value)})" if detail["type"] in _EXPECTED else _value(path, value)
        case bool() | None:
            return _value(path, value)
        case _:
            return f"the number {_value(path, value)}" if detail["type"] in _EXPECTED else _value(path, value)


def _type_hint(path: Path, detail: ErrorDetails) -> str | None:
    """How to write the same value with the required type, if that is clear."""
    value = detail["input"]
    if _is_secretive(path):
        return None
    match detail["type"]:
        case "string_type" if isinstance(value, bool):
            return f'write it in quotes: "{str(value).lower()}"'
        case "string_type" if isinstance(value, int):
            return f'write it in quotes: "{value}"'
        case "int_type" if isinstance(value, str) and _WHOLE.fullmatch(value):
            return f"write it without quotes: {value}"
        case "bool_type" if isinstance(value, str) and value.casefold() in _WORDS:
            return f"write {_WORDS[value.casefold()]}"
    return None


def _is_secretive(path: Path) -> bool:
    return any(isinstance(part, str) and is_secretive(part) for part in path)


def _value(path: Path, value: object) -> str:
    """The wrong value, shortened; masked if it may be a secret."""
    if _is_secretive(path):
        return "*****"
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case str():
            value = mask_url(value)
            return f"'{value}'" if len(value) <= 60 else f"'{value[:57]}...'"
        case dict():
            return "a map"
        case list() | tuple():
            return "a list"
        case _:
            return str(value)[:60]


def _plain(bound: object) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _either(words: Sequence[str]) -> str:
    return " or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"


def _accepted_values(text: str) -> list[str]:
    """The values in pydantic's enumeration `'a', 'b' or 'c'` or `0 or 1`."""
    return re.findall(r"'([^']*)'", text) or re.split(r", | or ", text)


def _bare(quoted: object) -> str:
    return str(quoted).strip("'")
