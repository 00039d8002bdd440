"""Which applications are members of a consumer group.

The group is named after the source and a setting that pipelines may share, so processes of different applications can
meet in it. The group would divide the topic between them, and each would miss messages. Hence every member names its
application, its topic and its state in its client id, the only text of a member that others can see.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from streamling.clients.kafka import Broker, Group, Member
from streamling.errors import GROUP_SHARED, PermanentError, TransientError
from streamling.retry import retry

log = logging.getLogger(__name__)

# How often the members are looked up while another application has to leave the group.
_PAUSE_S = 1.0
_NAMES = ("application", "topic", "state")


@dataclass(frozen=True, slots=True)
class MemberLabel:
    """What a member says about itself. `state`: identity of the state that has its positions."""

    application: str
    topic: str
    state: str

    def to_client_id(self, prefix: str | None) -> str:
        values = zip(_NAMES, (self.application, self.topic, self.state), strict=True)
        return ";".join([prefix or "streamling", *(f"{name}={quote(value, safe='')}" for name, value in values)])

    @classmethod
    def from_client_id(cls, client_id: str) -> MemberLabel | None:
        """None for a member that has none: an older version, or another program."""
        fields = [field.partition("=") for field in client_id.split(";")[-len(_NAMES) :]]
        if tuple(name for name, _, _ in fields) != _NAMES:
            return None
        return cls(*(unquote(value) for _, _, value in fields))


class GroupMembers:
    """Compares the members of the group with this process, for the source `name`."""

    def __init__(self, broker: Broker, name: str, group: str, own: MemberLabel) -> None:
        self._broker = broker
        self._name = name
        self._group = group
        self._own = own
        self._can_see = True
        self._warned: set[str] = set()

    def wait_until_free(
        self, seconds: float, closing: threading.Event, on_trouble: Callable[[str | None], None]
    ) -> None:
        """Returns before this process joins. Raises PermanentError if another application stays in the group.

        A process of it that was killed is a member until its session expires, after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while not closing.is_set():
            try:
                members = retry(
                    self._members,
                    what=f"source {self._name}: looking at the group",
                    stopping=closing.is_set,
                    sleep=closing.wait,
                    on_trouble=on_trouble,
                )
            except TransientError:
                if not closing.is_set():
                    raise
                return
            conflict = self._conflict(members)
            if conflict is None:
                on_trouble(None)
                return
            if time.monotonic() >= deadline:
                raise conflict
            on_trouble(f"the group '{self._group}' is in use by another application")
            closing.wait(_PAUSE_S)

    def check(self) -> None:
        """Called while this process is a member. Raises PermanentError if a member is of another application."""
        members = self._members()
        if conflict := self._conflict(members):
            raise conflict
        labels = [MemberLabel.from_client_id(member.client_id) for member in members]
        unknown = sum(label is None for label in labels)
        apart = sum(label is not None and self._divides(label) and label.state != self._own.state for label in labels)
        if unknown:
            self._warn(
                f"the group '{self._group}' has {unknown} members that do not name their application: an older "
                "version, or another program. If it does not share the state of this process, each gets only some of "
                "the messages"
            )
        if apart:
            self._warn(
                f"the group '{self._group}' has {len(members)} members, but {apart} of them have another state than "
                "this process: when partitions move, rows are repeated or lost. Use a state backend that all members "
                "share"
            )

    def group(self) -> Group | None:
        """The group as its coordinator sees it; None if the broker does not show it to this process."""
        if not self._can_see:
            return None
        try:
            return self._broker.group(self._group)
        except PermanentError as error:
            self._can_see = False
            self._warn(f"{error.message}; whether another application uses the group is not checked")
            return None

    def sharing(self, members: Sequence[Member]) -> int:
        """How many of the members may get partitions of the topic, this process included."""
        labels = (MemberLabel.from_client_id(member.client_id) for member in members)
        return sum(label is None or self._divides(label) for label in labels)

    def _members(self) -> Sequence[Member]:
        group = self.group()
        return () if group is None else group.members

    def _divides(self, label: MemberLabel) -> bool:
        """Whether the group divides the topic between that member and this process. Each topic is divided by itself."""
        return label.topic == self._own.topic

    def _conflict(self, members: Sequence[Member]) -> PermanentError | None:
        labels = [(member, MemberLabel.from_client_id(member.client_id)) for member in members]
        others = {
            label.application: member.host
            for member, label in labels
            if label is not None and self._divides(label) and label.application != self._own.application
        }
        if not others:
            return None
        named = ", ".join(f"'{application}' (host {host})" for application, host in sorted(others.items()))
        return PermanentError(
            GROUP_SHARED,
            f"the consumer group '{self._group}' of topic '{self._own.topic}' is used by application {named}, so "
            f"application '{self._own.application}' would get only some of the messages",
            node=self._name,
            hint="give each application its own kafka_source.consumer_group_id; processes that are to divide the topic "
            "need the same application_id",
        )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("source %s: %s", self._name, text)
