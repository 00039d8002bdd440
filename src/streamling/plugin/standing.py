"""Where a sink's own record stands with respect to slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamling.plugin.contract import Applied, Json, Slice


def standing(known: Mapping[str, Json], slices: Sequence[Slice]) -> Applied:
    """YES: behind all of them. NO: before all of them, or nothing is known of them. UNKNOWN: elsewhere.

    An epoch without slices holds rows that no position tells of: it is always new.
    """
    if slices and all(s.key in known and known[s.key] == s.end for s in slices):
        return Applied.YES
    if all(s.key not in known or known[s.key] == s.start for s in slices):
        return Applied.NO
    return Applied.UNKNOWN
