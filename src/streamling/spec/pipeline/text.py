"""The text of a pipeline, from a file or a program."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamling.errors import INVALID_YAML, PIPELINE_FILE, UserError, Where
from streamling.spec.faults import nearest


@dataclass(frozen=True, slots=True)
class PipelineText:
    """A pipeline that a program passes as text; messages use `name` as the file name."""

    text: str
    name: str = "<pipeline>"

    def __str__(self) -> str:
        return self.name


def pipeline_text(path: Path | str) -> str:
    """The text of a pipeline file, before preprocessing."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        hint = _hint_for_missing(Path(path))
        raise UserError(PIPELINE_FILE, f"pipeline file '{path}' not found", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(PIPELINE_FILE, f"pipeline file '{path}' cannot be read: {reason}", cause=error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = Where(str(path), data.count(b"\n", 0, error.start) + 1, 1)
        raise UserError(INVALID_YAML, "invalid YAML: the file is not UTF-8 text", where=where, cause=error) from error


def _hint_for_missing(path: Path) -> str:
    """The file in the same directory that was probably meant, or how to create one."""
    if not path.parent.is_dir():
        return f"there is no directory '{path.parent}'"
    with suppress(OSError):  # a directory that cannot be listed
        # Compared by stem: the common suffix would make all names similar.
        names = {entry.stem: entry.name for entry in sorted(path.parent.glob("*.y*ml"))}
        if (stem := nearest(path.stem, names)) is not None:
            return f"did you mean '{path.with_name(names[stem])}'?"
    return f"create one with `streamling init {path}`"
