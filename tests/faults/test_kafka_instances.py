"""Several processes of a pipeline share a topic; each message is in the sinks once, whoever dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Workspace, workspace
from kafka_broker import KafkaBroker
from postgres_server import PostgresServer
from two_instances import TwoInstances

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]


def test_kills_in_turn_and_a_suspended_process_leave_each_message_once(place: Workspace, kafka: KafkaBroker) -> None:
    assert TwoInstances(place, kafka).take_turns(kills=2, suspended_s=15.0) == []


def test_two_processes_share_positions_in_postgres(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    with workspace(tmp_path, **postgres.database().state_settings()) as place:
        assert TwoInstances(place, kafka).take_turns(kills=1, suspended_s=12.0) == []
