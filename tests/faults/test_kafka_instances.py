"""Several processes of a pipeline share a topic; each message is in the sinks once, whoever dies."""

from __future__ import annotations

import pytest
from harness import Workspace
from kafka_broker import KafkaBroker
from two_instances import TwoInstances

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]


def test_kills_in_turn_and_a_suspended_process_leave_each_message_once(place: Workspace, kafka: KafkaBroker) -> None:
    assert TwoInstances(place, kafka).take_turns(kills=2, suspended_s=15.0) == []
