"""Where dead letters are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamling.errors import INTERNAL, BugError
from streamling.letters.letter import Letter, LetterBatch
from streamling.plan.pipeline import Plan
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import FileLetters, KafkaLetters, OnError, PostgresLetters
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class NewestLetters:
    """Letters without their contents, in no particular order. `complete`: there are no others."""

    letters: Sequence[Letter]
    complete: bool


class LetterStore(Protocol):
    """A destination. Raises TransientError or PermanentError, which name the node that it was made for."""

    place: str
    """Where the letters are, in words."""

    def open(self) -> None:
        """Create what is missing. Wrong settings are noticed here: the first bad row may come days later."""

    def put(self, batch: LetterBatch, letters: Iterator[Letter]) -> int:
        """Store the letters of a batch; they are durable on return. Called again for the same batch, it replaces
        them. Returns their number."""

    def remove(self, batch: LetterBatch) -> None:
        """No row of the batch is rejected: remove the letters of an earlier attempt, whose rows are delivered now.

        Letters of another process are not touched: it may have finished this epoch with rows that this process never
        read.
        """

    def close(self) -> None: ...


class StoredLetters(LetterStore, Protocol):
    """A destination whose letters can be read."""

    def read(self) -> Iterator[Letter]:
        """All letters with their status, in the order in which they were stored. Nothing, if nothing is there yet."""

    def newest(self, application: str, most: int, deadline: float) -> NewestLetters:
        """The newest letters of an application, at most `most` of them, or those found until `deadline`, on the
        monotonic clock."""

    def update(self, letters: Collection[Letter]) -> None:
        """Store the status and the reason of letters that are there; they are durable on return."""


def letter_stores(plan: Plan, settings: Settings) -> dict[str, StoredLetters]:
    """By node id: the destinations of the nodes with `on_error: dead_letter`."""
    storing = (node for node in plan.nodes if node.spec.options.on_error is OnError.DEAD_LETTER)
    return {node.id: store_for(node.spec, settings) for node in storing}


def store_for(node: NodeSpec, settings: Settings) -> StoredLetters:
    """The destination of a node with `on_error: dead_letter`."""
    match node.options.dead_letter:
        case FileLetters() as destination:
            from streamling.letters.files import LetterFiles

            return LetterFiles(node, destination)
        case PostgresLetters() as destination:
            from streamling.letters.postgres import LetterTable

            return LetterTable(node, destination, settings)
        case KafkaLetters() as destination:
            from streamling.letters.kafka import LetterTopic

            return LetterTopic(node, destination, settings)
    raise BugError(INTERNAL, "the node has no destination for dead letters", node=node.name)
