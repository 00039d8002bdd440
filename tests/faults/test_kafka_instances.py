"""Several processes of a pipeline share a topic; each message is in the sinks once, whichever process dies."""

from __future__ import annotations

import pytest

from support.harness import Workspace
from support.into_files import IntoFiles
from support.kafka_broker import KafkaBroker
from support.two_instances import TwoInstances

pytestmark = [pytest.mark.faults, pytest.mark.servers]


def test_kills_in_turn_and_a_suspended_process_leave_each_message_once(place: Workspace, kafka: KafkaBroker) -> None:
    pair = TwoInstances(place, IntoFiles(place, kafka, spark=False))
    with pair.running():
        for number in (0, 1):
            pair.at_work(number)
            pair.kill(number)
            pair.progress()
        pair.at_work(0)
        pair.suspend(0)
        pair.progress()
    assert pair.target.differences() == []
