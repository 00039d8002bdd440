"""Dead letters: rows that could not be delivered, kept with where they stood and what was wrong with them.

A letter's id depends on the row's place, not on the attempt: an epoch that is repeated after a crash writes the
same file again, with the same letters.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from streamling.connector import BadRow, Epoch, Json
from streamling.disk import disk_errors, local_path, safe_name, sync_directory
from streamling.errors import INTERNAL, INVALID_VALUE, BugError
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import FileLetters


def letter(
    bad: BadRow, node: NodeSpec, stage: str, epoch: Epoch, application: str, *, among: str, ordinal: int
) -> dict[str, Json]:
    """The envelope. Rows whose place is not known are told apart by the letters they are `among`, and by `ordinal`."""
    place = dict(bad.source) or {"among": among, "ordinal": ordinal}
    identity = json.dumps([application, node.ref, stage, place, bad.version], sort_keys=True)
    happened = datetime.fromtimestamp(epoch.now_us / 1e6, UTC).isoformat(timespec="milliseconds")
    return {
        "id": hashlib.sha256(identity.encode()).hexdigest()[:32],
        "application_id": application,
        "node": node.ref,
        "node_type": node.role.value,
        "stage": stage,
        "reason_code": bad.reason,
        "reason_text": bad.message,
        "raw": _base64(bad.raw),
        "raw_key": _base64(bad.raw_key),
        "headers": [[name, _base64(value)] for name, value in bad.headers] if bad.headers is not None else None,
        "row": bad.row,
        "source": {"node": node.ref, **bad.source} if stage == "decode" else (dict(bad.source) or None),
        "epoch": epoch.number,
        "timestamp": happened.replace("+00:00", "Z"),
        "status": "open",
    }


class LetterBox:
    """The directory a node's letters go to."""

    def __init__(self, node: NodeSpec) -> None:
        if not isinstance(node.options.dead_letter, FileLetters):
            raise BugError(INTERNAL, "no such destination of dead letters", node=node.name)
        self._node, self._directory = node, local_path(node.options.dead_letter.path)
        self._latest: dict[str, tuple[str, Path]] = {}
        # Known now: the first bad row may come days later.
        in_the_way = next((p for p in (self._directory, *self._directory.parents) if p.is_file()), None)
        if in_the_way is not None:
            message = f"'dead_letter.path' must be a directory, '{in_the_way}' is a file"
            raise node.error(INVALID_VALUE, message, "dead_letter", "path")

    @contextmanager
    def file(self, epoch: Epoch, stage: str) -> Iterator[LetterFile]:
        """A file for the letters of one epoch; it appears when all are written, and then it is durable."""
        # A number is used again after a crash or a reset, for other rows; slices and generation are not.
        slices = json.dumps([[s.key, s.start, s.end] for s in epoch.slices] or epoch.id)
        digest = hashlib.sha256(f"{epoch.generation}{stage}{slices}".encode()).hexdigest()
        name = f"{safe_name(self._node.ref)}-{epoch.number:08d}-{digest[:12]}.jsonl"
        with disk_errors(self._node, "dead_letter"):
            self._directory.mkdir(parents=True, exist_ok=True)
            draft = self._directory / f".{name}.{os.getpid()}"
            try:
                # What is no text, such as half of a surrogate pair, is written just as JSON escapes it.
                with draft.open("w", encoding="utf-8", errors="backslashreplace") as stream:
                    yield LetterFile(self._directory / name, stream, digest)
                    stream.flush()
                    os.fsync(stream.fileno())
                draft.rename(self._directory / name)
                self._latest[stage] = (epoch.id, self._directory / name)
            finally:
                draft.unlink(missing_ok=True)
            sync_directory(self._directory)

    def remove(self, epoch: Epoch, stage: str) -> None:
        """Nothing is refused of the epoch: letters of an earlier attempt of ours are of rows that get through now.

        Those of another process are not touched: it may have finished this epoch, without us having seen its rows.
        """
        written, path = self._latest.pop(stage, ("", None))
        if path is not None and written == epoch.id:
            with disk_errors(self._node, "dead_letter"):
                path.unlink(missing_ok=True)
                sync_directory(self._directory)


class LetterFile:
    """`id` is that of the file: the same for an epoch that is repeated, another for every other epoch."""

    def __init__(self, path: Path, stream: IO[str], id_: str) -> None:
        self.path, self.id, self._stream = path, id_, stream

    def write(self, content: Mapping[str, Json]) -> None:
        self._stream.write(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


def _base64(value: bytes | None) -> str | None:
    return base64.b64encode(value).decode() if value is not None else None
