"""Logs on standard error, without secrets: text for people, JSON for programs. Rows and reports go to stdout."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from streamling.cli.terminal import has_colours, printable
from streamling.log_context import current_fields
from streamling.spec.mask import mask_text

log = logging.getLogger(__name__)

_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
    "off": logging.CRITICAL + 1,
}
# Yellow, red, bold red.
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}
# py4j also uses the root logger; this project does not.
_NOISY = ("py4j", "pyspark", "sqlglot", "SQLQueryContextLogger", "httpcore", "httpx", "root")


class _Text(logging.Formatter):
    """A line for people; on a terminal the level has a colour."""

    def __init__(self, *, in_colour: bool) -> None:
        super().__init__()
        self._colours = _COLOURS if in_colour else {}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        level = f"{record.levelname:<7}"
        if record.levelno in self._colours:
            level = f"\x1b[{self._colours[record.levelno]}m{level}\x1b[0m"
        # Values of rows may contain codes that a terminal obeys.
        message = "\n".join(map(printable, mask_text(record.getMessage()).split("\n")))
        return f"{at} {level} {message}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = mask_text(record.getMessage())
        fields = {"timestamp": at, "level": record.levelname, "target": record.name, "message": message}
        all_fields = {**current_fields(), **getattr(record, "fields", {})}
        own = {name: _mask_field(value) for name, value in all_fields.items()}
        return json.dumps({**fields, **own})


def _mask_field(value: object) -> object:
    return mask_text(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class LogFilter:
    """What to log: a level for all targets, levels of single targets, and the words that are neither."""

    level: int | None = None
    targets: Mapping[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> LogFilter:
        """From `level,target=level,..`, in any order; levels are not case-sensitive."""
        level: int | None = None
        targets: dict[str, int] = {}
        wrong: list[str] = []
        for word in filter(None, (part.strip() for part in text.split(","))):
            target, separator, name = (part.strip() for part in word.rpartition("="))
            number = _LEVELS.get(name.lower())
            if number is None or (separator and not target):
                wrong.append(word)
            elif separator:
                targets[target.replace("::", ".")] = number
            else:
                level = number
        return cls(level, targets, tuple(wrong))


def _is_of(record: logging.LogRecord, targets: tuple[str, ...]) -> bool:
    return any(record.name == target or record.name.startswith(f"{target}.") for target in targets)


def start_logging(*, format_: str, level: str) -> None:
    """Send logs to standard error, with the filter in `level`, which may name targets."""
    filter_ = LogFilter.parse(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format_.lower() == "json" else _Text(in_colour=has_colours(sys.stderr)))
    # These libraries set their own levels when they are imported; their errors reach us as exceptions.
    named = tuple(filter_.targets)
    handler.addFilter(lambda record: not _is_of(record, _NOISY) or _is_of(record, named))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if filter_.level is None else filter_.level)
    for target, target_level in filter_.targets.items():
        logging.getLogger(target).setLevel(target_level)
    for word in filter_.wrong:
        log.warning("'%s' in the log filter is ignored: not a level (%s) or target=level", word, ", ".join(_LEVELS))
