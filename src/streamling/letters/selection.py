"""The dead letters of a pipeline, from all its destinations, chosen by id, node, reason, time and status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from streamling.letters.letter import Letter, LetterStatus
from streamling.letters.store import StoredLetters, letter_stores
from streamling.plan.pipeline import Plan
from streamling.spec.duration import parse_duration
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters are meant. An empty one means all open letters."""

    ids: Collection[str] = ()
    node: str | None = None
    reason: str | None = None
    since: datetime | None = None
    status: LetterStatus | None = LetterStatus.OPEN
    """None: any."""

    def matches(self, letter: Letter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and (self.node is None or letter.node == self.node.lower())
            and (self.reason is None or letter.reason_code == self.reason)
            and (self.since is None or datetime.fromisoformat(letter.timestamp) >= self.since)
            and (self.status is None or letter.status == self.status.value)
        )


def parse_since(text: str, now: datetime) -> datetime:
    """A time as RFC 3339, or a duration before now, such as `2h`. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return now - timedelta(seconds=parse_duration(text).total_seconds())
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@dataclass(slots=True)
class DeadLetters:
    """All destinations of a pipeline. Nodes may share one; each letter is there once."""

    application: str
    stores: dict[str, StoredLetters]
    _by_id: dict[str, tuple[Letter, StoredLetters]] = field(default_factory=dict)

    def choose(self, wanted: Filter) -> list[Letter]:
        """The letters of this application that match, oldest first."""
        self._load()
        chosen = [letter for letter, _ in self._by_id.values() if wanted.matches(letter)]
        return sorted(chosen, key=lambda letter: (letter.timestamp, letter.epoch))

    def ids_for(self, text: str) -> list[str]:
        """The id with this text, or those that begin with it."""
        self._load()
        return [text] if text in self._by_id else [id_ for id_ in self._by_id if id_.startswith(text)]

    def refresh(self) -> None:
        """Read the letters again: another process may have changed them."""
        self._by_id.clear()
        self._load()

    def letter(self, id_: str) -> Letter | None:
        """As it is stored now; None if there is none."""
        self._load()
        return self._by_id[id_][0] if id_ in self._by_id else None

    def store_of(self, letter: Letter) -> StoredLetters:
        return self._by_id[letter.id][1]

    def resolve(self, letters: Sequence[Letter], status: LetterStatus) -> None:
        self.update([letter.with_status(status) for letter in letters])

    def update(self, letters: Sequence[Letter]) -> None:
        """Store the status and the reason of these letters; durable on return."""
        for store in self.stores.values():
            own = [letter for letter in letters if self._by_id[letter.id][1] is store]
            if own:
                store.update(own)
                self._by_id.update((letter.id, (letter, store)) for letter in own)

    def _load(self) -> None:
        if self._by_id:
            return
        read: set[str] = set()
        for store in self.stores.values():
            if store.place in read:
                continue
            read.add(store.place)
            for letter in store.read():
                if letter.application_id == self.application:
                    self._by_id[letter.id] = (letter, store)


@contextmanager
def dead_letters(plan: Plan, settings: Settings) -> Iterator[DeadLetters]:
    stores = letter_stores(plan, settings)
    try:
        yield DeadLetters(settings.application_id, stores)
    finally:
        for store in stores.values():
            store.close()
