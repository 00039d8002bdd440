"""What tells whether two epochs have the same rows: the slices, from where to where."""

from __future__ import annotations

import json

from streamling.connector import Epoch

Bounds = tuple[tuple[str, str], ...]
"""The slices of an epoch: their keys, starts and ends."""


def bounds(epoch: Epoch) -> Bounds:
    return tuple((s.key, json.dumps([s.start, s.end], sort_keys=True)) for s in epoch.slices)
