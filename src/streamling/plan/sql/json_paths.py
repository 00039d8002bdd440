"""Paths into JSON: `$`, `.key`, `[n]`, `['key']`, and nothing else."""

from __future__ import annotations

import re

from streamling.plan.sql.values import Refusal

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\['([^'\]]*)'\]|\[\"([^\"\]']*)\"\]")


def spark_path(path: str) -> str:
    """The path as Spark reads it, every key in brackets."""
    if not path.startswith("$"):
        raise _refused(path)
    steps: list[str] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise _refused(path)
        key, index, *in_quotes = match.groups()
        name = next((k for k in (key, *in_quotes) if k is not None), None)
        steps.append(f"[{index}]" if index is not None else f"['{name}']")
        position = match.end()
    return "$" + "".join(steps)


def _refused(path: str) -> Refusal:
    return Refusal(f"'{path}' is not a path into JSON", hint="write it with $, .key, [n] and ['key']")
