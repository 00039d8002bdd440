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
_ABSENT_S = 30.0
# Longer than the group waits for a member that does not join again.
_REBALANCING_S = 90.0
_STABLE = "Stable"


class GroupWatch:
    """Called by the thread of the membership while no partition is assigned."""

    def __init__(self, broker: Broker, members: GroupMembers, membership: Membership, name: str, group: str) -> None:
        self._broker = broker
        self._members = members
        self._membership = membership
        self._name = name
        self._group = group
        self._problem: str | None = None
        self._since = 0.0
        self._is_spare = False

    def restart(self) -> None:
        """Partitions are assigned."""
        self._problem = None
        self._is_spare = False

    def look(self) -> str | None:
        """What the process waits for; None if other members have all partitions of the topic, so that it has nothing
        to do. Joins again if that takes too long."""
        try:
            reason = self._reason()
        except TransientError as error:
            self._problem = None  # the client cannot join either
            reason = error.message
        if reason is None:
            return None
        self._is_spare = False
        return f"no partition of the group '{self._group}' is assigned: {reason}"

    def _reason(self) -> str | None:
        group = self._members.group()
        if group is None:
            return "waiting for the other members"
        reason = f"the group has {len(group.members)} members and is in the state {group.state}"
        if self._membership.member_id not in {member.id for member in group.members}:
            self._broker.check_coordinator(self._group)
            self._rejoin_after(_ABSENT_S, "not a member of the group, although its coordinator answers")
            return f"this process is not yet a member; {reason}"
        if group.state != _STABLE:
            self._rejoin_after(_REBALANCING_S, "the group does not finish its rebalance")
            return reason
        self._problem = None
        partitions = len(self._broker.find_partitions() or ())
        members = self._members.sharing(group.members)
        if not partitions or members <= partitions:
            return f"{reason}; the topic has {partitions} partitions"
        if not self._is_spare:
            text = "source %s: the group '%s' has %d members for %d partitions: this process waits until one leaves"
            log.info(text, self._name, self._group, members, partitions)
        self._is_spare = True
        return None

    def _rejoin_after(self, seconds: float, problem: str) -> None:
        now = time.monotonic()
        if problem != self._problem:
            self._problem = problem
            self._since = now
        if now - self._since < seconds:
            return
        text = "source %s: group '%s': %s, for %.0f s; joining again with a new client"
        log.warning(text, self._name, self._group, problem, now - self._since)
        self._problem = None
        self._membership.rejoin()
