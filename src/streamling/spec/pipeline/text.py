"""The text of a pipeline, from a file or a program."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamling.errors import INVALID_YAML, PIPELINE_FILE, UserError, Where
from streamling.spec.faults import nearest


@dataclass(frozen=True, slots=True)
class PipelineText:
    """A pipeline that a program gives as text; `name` stands for a file in messages."""

    text: str
    name: str = "<pipeline>"

    def __str__(self) -> str:
        return self.name


def pipeline_text(path: Path | str) -> str:
    """The text of a pipeline file, as preprocessors get it."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        hint = _nearest_file(Path(path))
        raise UserError(PIPELINE_FILE, f"pipeline file '{path}' not found", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(PIPELINE_FILE, f"pipeline file '{path}' cannot be read: {reason}", cause=error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = Where(str(path), data.count(b"\n", 0, error.start) + 1, 1)
        raise UserError(INVALID_YAML, "invalid YAML: the file is not UTF-8 text", where=where, cause=error) from error


def _nearest_file(path: Path) -> str:
    """A hint: the file beside it that was meant, or how to get one."""
    if not path.parent.is_dir():
        return f"there is no directory '{path.parent}'"
    with suppress(OSError):  # a directory that cannot be listed
        # By their stems: what they all end with would make them all alike.
        beside = {entry.stem: entry.name for entry in sorted(path.parent.glob("*.y*ml"))}
        if (meant := nearest(path.stem, beside)) is not None:
            return f"did you mean '{path.with_name(beside[meant])}'?"
    return f"`streamling init {path}` writes one to start from"
