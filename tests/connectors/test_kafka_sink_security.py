"""The Kafka sink with a broker that asks who it is, and permits only some of what it wants to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streamling.connector import Guarantee
from streamling.errors import PermanentError
from support.kafka_sink_samples import committed, rows_of, sink, write
from support.postgres_samples import epoch
from support.secure_servers import USER, SecureServers

pytestmark = pytest.mark.servers
CLUSTER = "kafka-cluster"


@pytest.fixture
def trusting(secure: SecureServers, monkeypatch: pytest.MonkeyPatch) -> SecureServers:
    monkeypatch.setenv("SSL_CERT_FILE", str(secure.authority))
    return secure


def opened(servers: SecureServers, topic: str, more: str = ", data_format: json", **changes: str) -> Any:
    settings = servers.settings | changes
    brokers, url = settings.pop("brokers"), settings.pop("schema_registry_url")
    return sink(brokers, topic, more, registry_url=url, **settings)


@contextmanager
def denied(servers: SecureServers, kind: ResourceType, name: str, operation: AclOperation) -> Iterator[None]:
    """The user may do everything but this with things whose names begin with `name`."""
    admin = AdminClient({"bootstrap.servers": servers.kafka.brokers})
    pattern = ResourcePatternType.LITERAL if name == CLUSTER else ResourcePatternType.PREFIXED
    to_user = (kind, name, pattern, f"User:{USER}", "*")
    rules = [
        (*to_user, AclOperation.ALL, AclPermissionType.ALLOW),
        (*to_user, operation, AclPermissionType.DENY),
    ]
    for done in admin.create_acls([AclBinding(*rule) for rule in rules]).values():
        done.result(20)
    try:
        yield
    finally:
        for done in admin.delete_acls([AclBindingFilter(*rule) for rule in rules]).values():
            done.result(20)


def ids(servers: SecureServers, topic: str) -> list[int]:
    return [row["id"] for row in rows_of(committed(servers.kafka.brokers, topic))]


def test_rows_are_written_with_a_password_over_tls_without_the_right_to_create(trusting: SecureServers) -> None:
    topic = trusting.kafka.topic()
    with denied(trusting, ResourceType.BROKER, CLUSTER, AclOperation.CREATE):
        with denied(trusting, ResourceType.TOPIC, topic, AclOperation.CREATE):
            with opened(trusting, topic, ", data_format: avro") as out:
                assert out.capabilities.guarantee is Guarantee.EXACTLY_ONCE
                write(out, [(1, "a", 1, "i")], epoch(None, 1))
            with pytest.raises(PermanentError, match=f"topic '{topic}.missing' cannot be created"):
                with opened(trusting, f"{topic}.missing"):
                    pass
    assert len(committed(trusting.kafka.brokers, topic)) == 1


def test_a_wrong_password_is_an_error_at_once(trusting: SecureServers) -> None:
    with pytest.raises(PermanentError, match="Authentication failed") as caught:
        with opened(trusting, trusting.kafka.topic(), sasl_password="hunter2"):
            pass
    assert "hunter2" not in repr(caught.value)


@pytest.mark.parametrize(
    ("kind", "operation"),
    [(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE), (ResourceType.GROUP, AclOperation.READ)],
)
def test_without_the_right_to_use_transactions_rows_are_written_at_least_once(
    trusting: SecureServers, kind: ResourceType, operation: AclOperation, caplog: pytest.LogCaptureFixture
) -> None:
    topic = trusting.kafka.topic()
    with denied(trusting, kind, f"app-{topic}", operation), opened(trusting, topic) as out:
        assert out.capabilities.guarantee is Guarantee.AT_LEAST_ONCE and not out.capabilities.transactional
        write(out, [(1, "a", 1, "i")], epoch(None, 1))
    assert ids(trusting, topic) == [1]
    assert "rows are delivered at least once" in caplog.text and "uthorization failed" in caplog.text


@pytest.mark.parametrize("more", ["", ", exactly_once: false"])
def test_a_right_that_is_taken_away_ends_the_run(trusting: SecureServers, more: str) -> None:
    topic = trusting.kafka.topic()
    with opened(trusting, topic, f", data_format: json{more}") as out:
        write(out, [(1, "a", 1, "i")], epoch(None, 1))
        with denied(trusting, ResourceType.TOPIC, topic, AclOperation.WRITE):
            with pytest.raises(PermanentError, match="Topic authorization failed") as caught:
                write(out, [(2, "b", 1, "i")], epoch(1, 2))
            assert topic in caught.value.message
    assert ids(trusting, topic) == [1]
