"""The keys by which another system recognises a request that it gets again."""

from __future__ import annotations

import hashlib
import json
import threading

from streamling.connector.slices import Epoch


class RequestKeys:
    """The keys of the requests of one node in one epoch.

    A key depends on the state, the node, the slices and the body, not on the epoch's id: it is the same for every
    attempt, and when the epoch is replayed. Equal bodies of one epoch have different keys. Rows without slices, those
    of plugins, are identified by the epoch that was finalized before.
    """

    def __init__(self, epoch: Epoch, node: str) -> None:
        slices = [[s.key, s.start, s.end] for s in epoch.slices]
        identity = [epoch.generation, node, slices, epoch.previous, epoch.partition]
        self._base = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16)
        self._lock = threading.Lock()
        self._bodies: dict[bytes, int] = {}

    def key(self, body: bytes) -> str:
        """The key of the next request with this body."""
        made = self._base.copy()
        made.update(b"\0")
        made.update(body)
        digest = made.digest()
        with self._lock:
            count = self._bodies.get(digest, 0)
            self._bodies[digest] = count + 1
        return f"{digest.hex()}-{count}" if count else digest.hex()
