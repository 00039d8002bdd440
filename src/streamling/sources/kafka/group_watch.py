"""What a member of a consumer group waits for as long as no partition is assigned to it.

A client can lose its group without an error: requests that were sent before a broker went away can keep it from joining
again for minutes after the broker is back. So the process asks the broker: if it is no member although the coordinator
of the group answers, it joins again with a new client.
"""

from __future__ import annotations

import logging
import time

from streamling.clients.kafka import Broker
from streamling.errors import TransientError
from streamling.sources.kafka.group_members import GroupMembers
from streamling.sources.kafka.membership import Membership

log = logging.getLogger(__name__)

# Longer than a client needs by itself: the timeout of a request, and of a join of all members.
_REJOIN_S = 30.0


class GroupWatch:
    """Called by the thread of the membership while no partition is assigned."""

    def __init__(self, broker: Broker, members: GroupMembers, membership: Membership, name: str, group: str) -> None:
        self._broker = broker
        self._members = members
        self._membership = membership
        self._name = name
        self._group = group
        self._absent_since: float | None = None

    def restart(self) -> None:
        """Partitions are assigned."""
        self._absent_since = None

    def look(self) -> str:
        """What the process waits for. Joins again if it is not a member for too long."""
        try:
            return f"no partition of the group '{self._group}' is assigned: {self._reason()}"
        except TransientError as error:
            self._absent_since = None  # the client cannot join either
            return f"no partition of the group '{self._group}' is assigned: {error.message}"

    def _reason(self) -> str:
        ids = self._members.ids()
        if ids is None:
            return "waiting for the other members"
        if self._membership.member_id in ids:
            self._absent_since = None
            return f"the group has {len(ids)} members, and may be dividing the partitions"
        self._broker.check_coordinator(self._group)
        now = time.monotonic()
        if self._absent_since is None:
            self._absent_since = now
        absent_s = now - self._absent_since
        if absent_s < _REJOIN_S:
            return f"this process is not yet one of its {len(ids)} members"
        log.warning(
            "source %s: not a member of the group '%s' for %.0f s, although its coordinator answers; joining again "
            "with a new client",
            self._name,
            self._group,
            absent_s,
        )
        self._membership.rejoin()
        self._absent_since = None
        return "joining again with a new client"
