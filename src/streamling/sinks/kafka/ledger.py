"""The sink's positions, in the cluster it writes to: offset metadata of consumer groups that no consumer joins.

Every process writes in transactions of its own *session*: a transactional id with a random word at the end. Each
session has a page, the positions of the state keys it owns, which is stored in the transaction that writes their rows.
A directory says which session owns a key. Only who holds the ledger's lock changes it: the lock is a transactional id
that all processes share, and the broker lets only the last producer that asked for it commit.

To own a key, a process takes the lock, fences the session that owned the key (the broker aborts its open transaction
and lets it commit nothing more), reads that session's page, and stores directory and own page in one transaction of the
lock. From then on the former owner cannot write the key, and learns it when the broker refuses its next request. It may
still own other keys: it then begins a new session and acquires these again.

An abandoned epoch is noted in the directory: its owner may not have acquired its keys yet. The note is of no use once a
key of the epoch has moved.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamling.clients.kafka import REQUEST_SECONDS
from streamling.clients.kafka_producer import LostTransaction, TopicProducer, read_offset
from streamling.connector import Applied, Epoch, Json, Slice, compare_positions
from streamling.errors import SINK_FAILED, STATE_MOVED, Fenced, TransientError, UserError
from streamling.spec.settings.blocks import KafkaConnection

log = logging.getLogger(__name__)
# A broker accepts 4096 bytes of metadata for an offset, unless told otherwise. More is stored in several groups.
_CHUNK_CHARACTERS = 4000
# A broker forgets offsets of such groups after seven days, unless told otherwise: store the directory again before.
_REFRESH_SECONDS = 6 * 3600.0
_MAX_ABANDONED = 200
_READ_ATTEMPTS = 50

MakeProducer = Callable[[str], TopicProducer]
"""A producer with this transactional id."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How positions are read: whether to wait for a transaction that is about to change them, and how long."""

    waits: bool
    seconds: float


_WAIT, _MOMENT, _NO_WAIT = _Way(True, REQUEST_SECONDS), _Way(True, 1.0), _Way(False, REQUEST_SECONDS)


@dataclass(slots=True)
class _Session:
    """This process as the broker knows it. `page`: the positions of the keys it owns, as of its last commit."""

    word: str
    producer: TopicProducer
    page: dict[str, Json] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)
    stored_at: float = 0.0


@dataclass(slots=True)
class _Directory:
    owners: dict[str, str] = field(default_factory=dict)
    """By state key, the word of the session that owns it."""
    abandoned: dict[str, dict[str, Json]] = field(default_factory=dict)
    """By id of the epoch, its state keys and where it started."""


class Ledger:
    """`applied` may be called at any time; the other methods from one thread at a time."""

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        make_producer: MakeProducer,
        *,
        application: str,
        sink: str,
        generation: str,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._make_producer = make_producer
        self._base = f"{application}-{sink}"
        self._identity = {"application": application, "sink": sink}
        self._generation = generation
        self._session: _Session | None = None
        self._lock: TopicProducer | None = None
        """Kept after use: it can be used again if no other process has taken the lock."""

    @property
    def producer(self) -> TopicProducer:
        return self._open_session().producer

    def check(self) -> None:
        """Use everything once that a commit needs. Raises PermanentError if the broker does not permit it."""
        session = self._open_session()
        session.producer.begin()
        self._store(session.producer, self._page_group(session.word), {})
        session.producer.commit()
        self._lock = self._make_producer(f"{self._base}-ledger")
        self._lock.init()
        self._read_directory(_WAIT)

    def claim(self, epoch: Epoch) -> Applied:
        """Make sure that this process alone can write the epoch's keys; returns whether they are written already.

        Raises Fenced if the epoch was abandoned.
        """
        session = self._open_session()
        if not epoch.slices:
            return Applied.NO
        is_old = time.monotonic() - session.stored_at > _REFRESH_SECONDS
        if is_old or not session.owned.issuperset(s.key for s in epoch.slices):
            self._acquire(session, epoch, abandon=False)
        return compare_positions(session.page, epoch.slices)

    def applied(self, slices: Sequence[Slice]) -> Applied:
        """Does not wait for the owner of the slices: what it has not committed yet does not count."""
        try:
            # A commit that has just ended becomes visible a moment later.
            return self._compare(slices, _MOMENT)
        except TransientError:
            return self._compare(slices, _NO_WAIT)

    def _compare(self, slices: Sequence[Slice], way: _Way) -> Applied:
        directory = self._read_directory(way)
        owners = {directory.owners[s.key] for s in slices if s.key in directory.owners}
        return compare_positions(self._read_positions(directory, owners, way), slices)

    def abandon(self, epoch: Epoch) -> Applied:
        session = self._open_session()
        self._acquire(session, epoch, abandon=True)
        return compare_positions(session.page, epoch.slices)

    def move(self, epoch: Epoch) -> None:
        """Store the positions after the epoch, in the open transaction of the session."""
        session = self._open_session()
        if epoch.slices:
            page = {**session.page, **{s.key: s.end for s in epoch.slices}}
            self._store(session.producer, self._page_group(session.word), page)

    def moved(self, epoch: Epoch) -> None:
        """The transaction with these positions is committed."""
        self._open_session().page.update({s.key: s.end for s in epoch.slices})

    def close(self) -> None:
        self.end_session()
        self._release_lock()

    def end_session(self) -> None:
        """The next call begins a new session, which fences this one."""
        if self._session is not None:
            self._session.producer.close()
            self._session = None

    def _open_session(self) -> _Session:
        if self._session is None:
            word = secrets.token_hex(6)
            producer = self._make_producer(f"{self._base}-{word}")
            producer.init()
            self._session = _Session(word, producer, stored_at=time.monotonic())
        return self._session

    # Ownership

    def _acquire(self, session: _Session, epoch: Epoch, *, abandon: bool) -> None:
        if self._lock is not None:
            try:
                self._acquire_locked(self._lock, session, epoch, abandon=abandon)
                return
            except LostTransaction:  # another process has taken the lock since
                self._release_lock()
        self._lock = self._make_producer(f"{self._base}-ledger")
        try:
            self._lock.init()
            self._acquire_locked(self._lock, session, epoch, abandon=abandon)
        except TransientError:
            self._release_lock()
            raise

    def _acquire_locked(self, lock: TopicProducer, session: _Session, epoch: Epoch, *, abandon: bool) -> None:
        """If another process takes the lock meanwhile, the last step fails and nothing has changed."""
        directory = self._read_directory(_WAIT)
        if epoch.id in directory.abandoned and not abandon:
            raise Fenced(STATE_MOVED, "another process has taken over these rows", node=self._identity["sink"])
        keys = {s.key for s in epoch.slices} | self._still_owned(session, directory)
        # The session itself is among them if the answer to an earlier attempt was lost.
        former = {directory.owners[key] for key in keys - session.owned if key in directory.owners}
        for word in sorted(former - {session.word}):
            self._fence(word)
        positions = self._read_positions(directory, former, _WAIT)
        page = {**{key: positions[key] for key in keys if key in positions}, **session.page}
        directory.owners |= dict.fromkeys(keys, session.word)
        if abandon:
            directory.abandoned[epoch.id] = {s.key: s.start for s in epoch.slices}
        directory.abandoned = _still_needed(directory.abandoned, page)
        lock.begin()
        self._store(lock, self._directory_group, self._directory_json(directory))
        self._store(lock, self._page_group(session.word), page)
        lock.commit()
        session.page = page
        session.owned = keys
        session.stored_at = time.monotonic()

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _still_owned(self, session: _Session, directory: _Directory) -> set[str]:
        lost = sorted(key for key in session.owned if directory.owners.get(key) != session.word)
        if lost:
            message = f"another process has taken over {lost[0]}, and fenced the transactions of this one"
            raise LostTransaction(SINK_FAILED, message)
        return session.owned

    def _fence(self, word: str) -> None:
        former = self._make_producer(f"{self._base}-{word}")
        try:
            former.init()
        finally:
            former.close()

    # What is stored

    @property
    def _directory_group(self) -> str:
        return f"{self._base}-ledger"

    def _page_group(self, word: str) -> str:
        return f"{self._base}-ledger-{word}"

    def _read_directory(self, way: _Way) -> _Directory:
        stored = self._read(self._directory_group, way)
        if stored is None or stored.get("generation") != self._generation:
            return _Directory()
        identity = {name: stored.get(name) for name in self._identity}
        if identity != self._identity:
            message = f"the group '{self._directory_group}' holds the positions of another sink: {identity}"
            raise UserError(SINK_FAILED, message, hint="rename the sink or the application")
        return _Directory(stored["owners"], stored["abandoned"])

    def _directory_json(self, directory: _Directory) -> dict[str, Any]:
        content = {"owners": directory.owners, "abandoned": directory.abandoned}
        return {**self._identity, "generation": self._generation, **content}

    def _read_positions(self, directory: _Directory, words: set[str], way: _Way) -> dict[str, Json]:
        """The positions in the pages of these sessions, each of a key that the session owns."""
        positions: dict[str, Json] = {}
        for word in words:
            page = self._read(self._page_group(word), way) or {}
            positions |= {key: value for key, value in page.items() if directory.owners.get(key) == word}
        return positions

    def _store(self, producer: TopicProducer, group: str, content: Mapping[str, Json]) -> None:
        for number, chunk in enumerate(_chunks(content)):
            producer.store_offset(_chunk_group(group, number), chunk)

    def _read(self, group: str, way: _Way) -> dict[str, Any] | None:
        read = partial(read_offset, self._connection, topic=self._topic, waits=way.waits, seconds=way.seconds)
        for _ in range(_READ_ATTEMPTS):
            first = read(group)
            if first is None:
                return None
            mark, count, text = first.split(" ", 2)
            rest = [read(_chunk_group(group, n)) for n in range(1, int(count))]
            if all(chunk is not None and chunk.startswith(f"{mark} ") for chunk in rest):
                return _decode(text + "".join((chunk or "").split(" ", 2)[2] for chunk in rest))
            time.sleep(0.02)  # another version was stored in between
        raise TransientError(SINK_FAILED, f"the positions in the group '{group}' change all the time")


def _chunk_group(group: str, number: int) -> str:
    return f"{group}-{number}" if number else group


def _chunks(content: Mapping[str, Json]) -> list[str]:
    """The content as texts that the broker accepts; all begin with a mark, so that a reader sees one version."""
    text = json.dumps(content, separators=(",", ":"))
    if len(text) > _CHUNK_CHARACTERS:
        text = base64.b85encode(zlib.compress(text.encode())).decode()
    pieces = [text[i : i + _CHUNK_CHARACTERS] for i in range(0, len(text), _CHUNK_CHARACTERS)]
    mark = secrets.token_hex(4)
    return [f"{mark} {len(pieces)} {piece}" for piece in pieces]


def _decode(text: str) -> dict[str, Any]:
    content = text if text.startswith("{") else zlib.decompress(base64.b85decode(text)).decode()
    decoded: dict[str, Any] = json.loads(content)
    return decoded


def _still_needed(abandoned: Mapping[str, dict[str, Json]], page: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Without the epochs of which a key has moved: they cannot be written any more."""
    needed = {
        id_: keys
        for id_, keys in abandoned.items()
        if all(key not in page or page[key] == start for key, start in keys.items())
    }
    return dict(list(needed.items())[-_MAX_ABANDONED:])
