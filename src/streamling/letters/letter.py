"""A dead letter: the envelope of a row that could not be delivered."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from streamling.connector import BadRow, Epoch, Json
from streamling.spec.mask import mask_text
from streamling.spec.pipeline import NodeSpec


class RejectStage(StrEnum):
    """Where a row was rejected: by a source, a transform or a sink."""

    DECODE = "decode"
    TRANSFORM = "transform"
    WRITE = "write"


class LetterStatus(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


UPDATED = ("status", "reason_code", "reason_text", "epoch", "timestamp")
"""The fields that change when a letter is discarded or replayed."""


@dataclass(frozen=True, slots=True)
class LetterBatch:
    """The letters of one node and stage in one epoch."""

    node: NodeSpec
    stage: RejectStage
    epoch: Epoch
    application: str

    @property
    def id(self) -> str:
        """The same when an epoch is replayed, and different for every other epoch."""
        # An epoch number is used again after a crash or a reset, for other rows; slices and generation are not.
        slices = json.dumps([[s.key, s.start, s.end] for s in self.epoch.slices] or self.epoch.id)
        return hashlib.sha256(f"{self.epoch.generation}{self.stage}{slices}".encode()).hexdigest()

    def letter(self, bad: BadRow, ordinal: int) -> Letter:
        """A row whose place is unknown is identified by its batch and its `ordinal` there.

        So the id depends on the row's place, not on the attempt: the replay of an epoch after a crash makes the same
        letters again.
        """
        node, stage, epoch = self.node, self.stage, self.epoch
        place = dict(bad.source) or {"among": self.id, "ordinal": ordinal}
        identity = json.dumps([self.application, node.ref, stage, place, bad.version], sort_keys=True)
        return Letter(
            id=hashlib.sha256(identity.encode()).hexdigest()[:32],
            application_id=self.application,
            node=node.ref,
            node_type=node.role.value,
            stage=stage.value,
            reason_code=bad.reason,
            reason_text=mask_text(bad.message),
            raw=bad.raw,
            raw_key=bad.raw_key,
            headers=bad.headers,
            row=bad.row,
            source=self._source(bad),
            epoch=epoch.number,
            timestamp=_timestamp(epoch.now_us / 1e6),
            now_us=epoch.now_us,
            input=bad.input,
        )

    def _source(self, bad: BadRow) -> dict[str, Json] | None:
        if self.stage is RejectStage.DECODE:
            return {"node": self.node.ref, **bad.source}
        return dict(bad.source or bad.origin or {}) or None


@dataclass(frozen=True, slots=True)
class Letter:
    """The fields of the envelope. `now_us` is the time that `now()` had in its epoch, in microseconds since 1970.

    `input` is the node that the row came from, if its node reads several.
    """

    id: str
    application_id: str
    node: str
    node_type: str
    stage: str
    reason_code: str
    reason_text: str
    raw: bytes | None
    raw_key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    row: Json
    source: Mapping[str, Json] | None
    epoch: int
    timestamp: str
    now_us: int
    status: str = LetterStatus.OPEN.value
    input: str | None = None

    @property
    def place(self) -> str:
        """Where the row is in its source, in words; empty if unknown."""
        known = {name: value for name, value in (self.source or {}).items() if name != "node"}
        return ", ".join(f"{name} {value}" for name, value in known.items())

    def without_contents(self) -> Letter:
        """This letter without its row and payload, which may be large."""
        return replace(self, raw=None, raw_key=None, headers=None, row=None)

    def with_status(self, status: LetterStatus) -> Letter:
        return replace(self, status=status.value)

    def rejected_again(self, other: Letter) -> Letter:
        """This letter with the reason of another one, which was made when its row was replayed."""
        now = _timestamp(time.time())
        return replace(
            self, reason_code=other.reason_code, reason_text=other.reason_text, epoch=other.epoch, timestamp=now
        )

    def to_json(self) -> dict[str, Json]:
        """As an object of JSON, bytes in base64."""
        content: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {"raw": _encode(self.raw), "raw_key": _encode(self.raw_key)}
        if self.headers is not None:
            content["headers"] = [[name, _encode(value)] for name, value in self.headers]
        if self.input is None:
            del content["input"]
        return content

    def to_line(self) -> str:
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))


def from_json(content: Mapping[str, Any]) -> Letter:
    """The letter of such an object. Raises KeyError, TypeError or ValueError if it is none."""
    known = {field.name: content[field.name] for field in fields(Letter) if field.name in content}
    known |= {"raw": _decode(content["raw"]), "raw_key": _decode(content["raw_key"])}
    if known["headers"] is not None:
        known["headers"] = tuple((name, _decode(value)) for name, value in known["headers"])
    known.setdefault("now_us", _microseconds(known["timestamp"]))  # letters of earlier versions have none
    return Letter(**known)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _microseconds(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1e6)


def _encode(value: bytes | None) -> str | None:
    return base64.b64encode(value).decode() if value is not None else None


def _decode(text: str | None) -> bytes | None:
    return base64.b64decode(text, validate=True) if text is not None else None
