"""Reads the parts of a hybrid source with the readers of its phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Counted, Json, Locator, Reached, Reader, Timed
from streamling.errors import JOB_MODE, UserError
from streamling.sources.hybrid.phases import unwrap_part

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class HybridReader:
    """`readers` by the number of the phase; in job mode the last one is missing."""

    name: str
    readers: tuple[Reader, ...]

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Timed | Reached]:
        number, inner = unwrap_part(part)
        if number >= len(self.readers):
            message = "an interrupted epoch has rows of the unbounded phase, which job mode does not read"
            hint = "run the pipeline once without job_mode: it replays the epoch"
            raise UserError(JOB_MODE, message, node=self.name, hint=hint)
        return self.readers[number].read(inner)


@dataclass(frozen=True, slots=True)
class HybridLocator:
    """`locators` by the number of the phase."""

    locators: Mapping[int, Locator]

    def places(self, part: Json) -> Iterator[Mapping[str, Json]]:
        number, inner = unwrap_part(part)
        return self.locators[number].places(inner)

    def rejects(self, parts: Sequence[Json], numbers: Sequence[int]) -> Mapping[int, BadRow]:
        """Only the unbounded phase has a filter that may reject rows, and its epochs have parts of no other phase."""
        if not parts:
            return {}
        number, _ = unwrap_part(parts[0])
        return self.locators[number].rejects([unwrap_part(part)[1] for part in parts], numbers)
