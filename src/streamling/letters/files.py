"""Dead letters in a directory: JSON lines, one file per node, stage and epoch, and `resolved.jsonl` with what became of
letters."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamling.disk import disk_errors, local_path, safe_name, sync_directory
from streamling.errors import INVALID_VALUE, LETTERS_FAILED, PermanentError
from streamling.letters.letter import UPDATED, Letter, LetterBatch, from_json
from streamling.letters.store import NewestLetters
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import FileLetters

_RESOLVED = "resolved.jsonl"


class LetterFiles:
    def __init__(self, node: NodeSpec, destination: FileLetters) -> None:
        self.place = destination.path
        self._node = node
        self._directory = local_path(destination.path)
        self._latest: dict[str, tuple[str, Path]] = {}
        """By stage: the last epoch that has a file, and the file."""

    def open(self) -> None:
        file = next((p for p in (self._directory, *self._directory.parents) if p.is_file()), None)
        if file is not None:
            message = f"'dead_letter.path' must be a directory, '{file}' is a file"
            raise self._node.error(INVALID_VALUE, message, "dead_letter", "path")

    def put(self, batch: LetterBatch, letters: Iterator[Letter]) -> int:
        name = f"{safe_name(self._node.ref)}-{batch.epoch.number:08d}-{batch.id[:12]}.jsonl"
        count = 0
        with disk_errors(self._node, "dead_letter"):
            self._directory.mkdir(parents=True, exist_ok=True)
            draft, path = self._directory / f".{name}.{os.getpid()}", self._directory / name
            try:
                # Invalid text, such as half of a surrogate pair, is written as a JSON escape.
                with draft.open("w", encoding="utf-8", errors="backslashreplace") as stream:
                    for letter in letters:
                        stream.write(letter.to_line() + "\n")
                        count += 1
                    stream.flush()
                    os.fsync(stream.fileno())
                draft.rename(path)
            finally:
                draft.unlink(missing_ok=True)
            sync_directory(self._directory)
        self._latest[batch.stage] = (batch.epoch.id, path)
        return count

    def remove(self, batch: LetterBatch) -> None:
        written, path = self._latest.pop(batch.stage, ("", None))
        if path is not None and written == batch.epoch.id:
            with disk_errors(self._node, "dead_letter"):
                path.unlink(missing_ok=True)
                sync_directory(self._directory)

    def read(self) -> Iterator[Letter]:
        with disk_errors(self._node, "dead_letter"):
            changes = self._changes()
            for path in self._paths():
                for letter in self._letters(path):
                    yield replace(letter, **changes.get(letter.id, {}))

    def newest(self, application: str, most: int, deadline: float) -> NewestLetters:
        with disk_errors(self._node, "dead_letter"):
            changes = self._changes()
            found: list[Letter] = []
            for path in reversed(self._paths()):
                last: deque[Letter] = deque(maxlen=most - len(found) + 1)
                for letter in self._letters(path):
                    if time.monotonic() > deadline:
                        return NewestLetters([*found, *reversed(last)][:most], complete=False)
                    if letter.application_id == application:
                        last.append(replace(letter.without_contents(), **changes.get(letter.id, {})))
                found += reversed(last)
                if len(found) > most:
                    return NewestLetters(found[:most], complete=False)
            return NewestLetters(found, complete=True)

    def _paths(self) -> list[Path]:
        """The files with letters, the oldest first."""
        paths = (path for path in self._directory.glob("*.jsonl") if path.name != _RESOLVED)
        return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _changes(self) -> dict[str, dict[str, Any]]:
        """By letter: what became of it."""
        lines = self._lines(self._directory / _RESOLVED)
        return {line["id"]: {name: line[name] for name in UPDATED if name in line} for line in lines}

    def _letters(self, path: Path) -> Iterator[Letter]:
        for number, content in enumerate(self._lines(path), start=1):
            yield self._letter(content, path, number)

    def update(self, letters: Collection[Letter]) -> None:
        with disk_errors(self._node, "dead_letter"), (self._directory / _RESOLVED).open("a", encoding="utf-8") as file:
            # A line that a full disk has cut must not swallow the next one.
            lines = [json.dumps({name: getattr(letter, name) for name in ("id", *UPDATED)}) for letter in letters]
            file.write("\n" * bool(file.tell()) + "\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._directory)

    def close(self) -> None: ...

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        if not path.exists():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    content = json.loads(line)
                except ValueError:
                    if path.name == _RESOLVED:
                        continue
                    raise self._unreadable(path, number) from None
                yield content

    def _letter(self, content: object, path: Path, number: int) -> Letter:
        try:
            return from_json(content)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError):
            raise self._unreadable(path, number) from None

    def _unreadable(self, path: Path, number: int) -> PermanentError:
        message = f"line {number} of {path} is not a dead letter"
        return PermanentError(LETTERS_FAILED, message, node=self._node.name, hint="move the file elsewhere")
