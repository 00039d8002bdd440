"""Dead letters: rows that could not be delivered, stored with their place in the source and the reason.

A letter's id depends on the row's place, not on the attempt: the replay of an epoch after a crash writes the same file
again, with the same letters.
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
from streamling.spec.mask import mask_text
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import FileLetters


def letter(
    bad: BadRow, node: NodeSpec, stage: str, epoch: Epoch, application: str, *, among: str, ordinal: int
) -> dict[str, Json]:
    """The stored envelope. A row whose place is unknown is identified by its file (`among`) and its `ordinal` there."""
    place = dict(bad.source) or {"among": among, "ordinal": ordinal}
    identity = json.dumps([application, node.ref, stage, place, bad.version], sort_keys=True)
    timestamp = datetime.fromtimestamp(epoch.now_us / 1e6, UTC).isoformat(timespec="milliseconds")
    return {
        "id": hashlib.sha256(identity.encode()).hexdigest()[:32],
        "application_id": application,
        "node": node.ref,
        "node_type": node.role.value,
        "stage": stage,
        "reason_code": bad.reason,
        "reason_text": mask_text(bad.message),
        "raw": _base64(bad.raw),
        "raw_key": _base64(bad.raw_key),
        "headers": [[name, _base64(value)] for name, value in bad.headers] if bad.headers is not None else None,
        "row": bad.row,
        "source": {"node": node.ref, **bad.source} if stage == "decode" else (dict(bad.source) or None),
        "epoch": epoch.number,
        "timestamp": timestamp.replace("+00:00", "Z"),
        "status": "open",
    }


class LetterBox:
    """The directory for a node's dead letters."""

    def __init__(self, node: NodeSpec) -> None:
        if not isinstance(node.options.dead_letter, FileLetters):
            raise BugError(INTERNAL, "dead letters can only be stored in files", node=node.name)
        self._node = node
        self._directory = local_path(node.options.dead_letter.path)
        self._latest: dict[str, tuple[str, Path]] = {}
        # Checked now: the first bad row may come days later.
        file = next((p for p in (self._directory, *self._directory.parents) if p.is_file()), None)
        if file is not None:
            message = f"'dead_letter.path' must be a directory, '{file}' is a file"
            raise node.error(INVALID_VALUE, message, "dead_letter", "path")

    @contextmanager
    def file(self, epoch: Epoch, stage: str) -> Iterator[LetterFile]:
        """A file for the letters of one epoch; it gets its name once all letters are written and durable."""
        # An epoch number is used again after a crash or a reset, for other rows; slices and generation are not.
        slices = json.dumps([[s.key, s.start, s.end] for s in epoch.slices] or epoch.id)
        digest = hashlib.sha256(f"{epoch.generation}{stage}{slices}".encode()).hexdigest()
        name = f"{safe_name(self._node.ref)}-{epoch.number:08d}-{digest[:12]}.jsonl"
        with disk_errors(self._node, "dead_letter"):
            self._directory.mkdir(parents=True, exist_ok=True)
            draft = self._directory / f".{name}.{os.getpid()}"
            try:
                # Invalid text, such as half of a surrogate pair, is written as a JSON escape.
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
        """No row of the epoch is rejected: remove the letters of an earlier attempt, whose rows are delivered now.

        Letters of another process are not touched: it may have finished this epoch with rows that this process never
        read.
        """
        written, path = self._latest.pop(stage, ("", None))
        if path is not None and written == epoch.id:
            with disk_errors(self._node, "dead_letter"):
                path.unlink(missing_ok=True)
                sync_directory(self._directory)


class LetterFile:
    """`id` identifies the file: it is the same when an epoch is replayed, and different for every other epoch."""

    def __init__(self, path: Path, stream: IO[str], id_: str) -> None:
        self.path = path
        self.id = id_
        self._stream = stream

    def write(self, content: Mapping[str, Json]) -> None:
        self._stream.write(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


def _base64(value: bytes | None) -> str | None:
    return base64.b64encode(value).decode() if value is not None else None
