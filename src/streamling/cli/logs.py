"""Logs on standard error: text for people, JSON for machines. Standard output belongs to rows and reports."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
# py4j speaks through the root logger, too; nothing of ours does.
_CHATTERERS = ("py4j", "pyspark", "sqlglot", "SQLQueryContextLogger", "root")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        return f"{at} {record.levelname:<7} {record.getMessage()}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"timestamp": at, "level": record.levelname, "target": record.name, "message": record.getMessage()}
        return json.dumps(fields)


def start_logging(*, format_: str, level: str) -> None:
    """Send our logs to standard error. Of a filter such as `info,target=debug` the first word counts."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format_.lower() == "json" else _Text())
    if level != "debug":
        # They set levels of their own while they are imported; what they have to say reaches us as exceptions.
        handler.addFilter(lambda record: not record.name.startswith(_CHATTERERS))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS.get(level.split(",")[0].strip().lower(), logging.INFO))
