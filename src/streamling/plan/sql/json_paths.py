"""Paths into JSON: `$`, `.key`, `[n]`, `['key']`, and nothing else."""

from __future__ import annotations

import re

from streamling.plan.sql.values import Refusal

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\['([^'\]]*)'\]|\[\"([^\"\]']*)\"\]")


def spark_path(path: str) -> str:
    """The path in Spark's syntax, with every key in brackets."""
    if not path.startswith("$"):
        raise _invalid_path(path)
    steps: list[str] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise _invalid_path(path)
        key, index, *quoted_keys = match.groups()
        name = next((k for k in (key, *quoted_keys) if k is not None), None)
        steps.append(f"[{index}]" if index is not None else f"['{name}']")
        position = match.end()
    return "$" + "".join(steps)


def _invalid_path(path: str) -> Refusal:
    return Refusal(f"'{path}' is not a valid JSON path", hint="write it with $, .key, [n] and ['key']")
