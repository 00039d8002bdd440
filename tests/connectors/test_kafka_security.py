"""Brokers and registries that ask who one is, and whose certificates a private authority has issued."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamling.errors import SCHEMA_NOT_FOUND, SETTING_INVALID, SOURCE_FAILED, PermanentError, UserError
from support.avro_frames import framed
from support.kafka_source_samples import PLENTY, everything, source
from support.secure_servers import PASSWORD, SecureServers

pytestmark = pytest.mark.servers

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
JSON = ", data_format: json, schema: {n: int64}"


@pytest.fixture
def trusting(secure: SecureServers, monkeypatch: pytest.MonkeyPatch) -> SecureServers:
    monkeypatch.setenv("SSL_CERT_FILE", str(secure.authority))
    return secure


def opened(servers: SecureServers, topic: str, more: str = "", **changes: str) -> Any:
    settings = servers.settings | changes
    brokers, url = settings.pop("brokers"), settings.pop("schema_registry_url")
    return source(brokers, topic, more, registry_url=url, **settings)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_rows_are_read_with_a_password_over_tls(mechanism: str, trusting: SecureServers) -> None:
    topic = trusting.kafka.topic()
    id_ = trusting.register(f"{topic}-value", SCHEMA)
    trusting.kafka.produce(topic, [framed(id_, SCHEMA, {"id": n}) for n in range(5)])
    with opened(trusting, topic, sasl_mechanism=mechanism, consumer_group_id="group") as events:
        assert everything(events) == [{"id": n, "_gs_op": "i"} for n in range(5)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_an_error_at_once(mechanism: str, trusting: SecureServers) -> None:
    began = time.monotonic()
    with pytest.raises(PermanentError) as caught:
        with opened(trusting, trusting.kafka.topic(), JSON, sasl_mechanism=mechanism, sasl_password="hunter2"):
            pass
    assert time.monotonic() - began < 8
    assert caught.value.condition is SOURCE_FAILED
    assert caught.value.node == "Events"
    assert trusting.settings["brokers"] in caught.value.message
    assert "Authentication failed" in caught.value.message
    assert "hunter2" not in repr(caught.value)


def test_readers_are_refused_as_well(trusting: SecureServers, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = trusting.kafka.topic()
    trusting.kafka.produce(topic, [b'{"n": 1}'])
    with opened(trusting, topic, JSON) as events:
        offer = events.offer(PLENTY)
        monkeypatch.setattr(events, "_connection", _changed(events, "sasl_password", "hunter2"))
        began = time.monotonic()
        with pytest.raises(PermanentError, match="Authentication failed") as caught:
            in_an_executor = replace(events.reader(), source_id="")
            list(in_an_executor.read(offer.slices[0].parts[0]))
    assert time.monotonic() - began < 8
    assert f"topic '{topic}' cannot be read at {trusting.settings['brokers']}" in caught.value.message


def test_a_certificate_of_nobody_known_is_an_error_at_once(secure: SecureServers) -> None:
    began = time.monotonic()
    with pytest.raises(PermanentError, match="certificate verify failed") as caught:
        with opened(secure, secure.kafka.topic(), JSON):
            pass
    assert time.monotonic() - began < 8
    assert "SSL_CERT_FILE" in (caught.value.hint or "")


def test_a_list_of_certificates_that_is_not_there_is_named(
    secure: SecureServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for content in (None, "no certificates"):
        file = tmp_path / "trusted.pem"
        if content is not None:
            file.write_text(content)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with pytest.raises(UserError) as caught:
            with opened(secure, secure.kafka.topic()):  # the registry is asked first
                pass
        assert caught.value.condition is SETTING_INVALID
        assert str(file) in caught.value.message


def test_a_mechanism_that_does_not_exist_is_an_error(trusting: SecureServers) -> None:
    with pytest.raises(PermanentError, match="Unsupported SASL mechanism: ROT13"):
        with opened(trusting, trusting.kafka.topic(), JSON, sasl_mechanism="ROT13"):
            pass


def test_a_registry_lets_in_those_it_knows(trusting: SecureServers) -> None:
    topic = trusting.kafka.topic()
    trusting.register(f"{topic}-value", SCHEMA)
    for changes in ({"schema_registry_password": "hunter2"}, {"schema_registry_username": ""}):
        with pytest.raises(PermanentError, match="answers 401") as caught:
            with opened(trusting, topic, **changes):
                pass
        assert caught.value.condition is SCHEMA_NOT_FOUND
        assert "hunter2" not in str(caught.value)
        assert PASSWORD not in str(caught.value)


def test_a_registry_of_nobody_known_is_an_error(secure: SecureServers) -> None:
    with pytest.raises(PermanentError, match="certificate verify failed"):
        with opened(secure, secure.kafka.topic()):
            pass


def _changed(events: Any, name: str, value: str) -> Any:
    connection = events._connection
    return type(connection).model_validate(json.loads(json.dumps(_revealed(connection) | {name: value})))


def _revealed(connection: Any) -> dict[str, Any]:
    values = {name: getattr(connection, name) for name in type(connection).model_fields}
    return {
        name: value.reveal() if hasattr(value, "reveal") else getattr(value, "value", value)
        for name, value in values.items()
    }
