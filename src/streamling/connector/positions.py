"""Positions in a sink's ledger, compared with the slices of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamling.connector.sink import Applied
from streamling.connector.slices import Json, Slice


def compare_positions(ledger: Mapping[str, Json], slices: Sequence[Slice]) -> Applied:
    """YES: already applied, the ledger is at the end of all slices. NO: not applied, it is at the start of all of them,
    or has none of their keys. UNKNOWN: neither, so another owner has moved it.

    An epoch without slices has rows without positions: it always counts as not applied.
    """
    if slices and all(s.key in ledger and ledger[s.key] == s.end for s in slices):
        return Applied.YES
    if all(s.key not in ledger or ledger[s.key] == s.start for s in slices):
        return Applied.NO
    return Applied.UNKNOWN
