"""A pipeline over a broker and a registry that want a password and are known to a private authority only."""

from __future__ import annotations

import signal

import pytest

from support.avro_frames import framed
from support.harness import Workspace
from support.secure_servers import PASSWORD, SecureServers

pytestmark = [pytest.mark.spark, pytest.mark.servers]

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


def test_driver_and_executors_are_let_in_and_a_wrong_password_ends_the_run(
    place: Workspace, secure: SecureServers
) -> None:
    topic = secure.kafka.topic(partitions=2)
    id_ = secure.register(f"{topic}-value", SCHEMA)
    kafka_rows = [framed(id_, SCHEMA, {"id": n}, key=str(n).encode()) for n in range(2000)]
    secure.kafka.produce(topic, kafka_rows)
    place.write(f"""\
sources: {{numbers: {{type: kafka, topic: {topic}}}}}
sinks: {{out: {{type: file, from: numbers, path: out, format: parquet}}}}
""")
    settings: dict[str, object] = {f"KAFKA_SOURCE__{k.upper()}": v for k, v in secure.settings.items()}
    settings |= {"KAFKA_SOURCE__SASL_MECHANISM": "SCRAM-SHA-256", "KAFKA_SOURCE__CONSUMER_GROUP_ID": "g"}
    trusting = {"SSL_CERT_FILE": str(secure.authority)}
    child = place.start("run", "-v", "pipeline.yaml", environment=trusting, EPOCH__DRIVER_ROWS=0, **settings)
    child.until(lambda: len(place.rows("out", "parquet")) >= 2000, "all rows")
    child.signal(signal.SIGTERM)
    finished = child.wait().succeeded()
    assert sorted(row["id"] for row in place.rows("out", "parquet")) == list(range(2000))
    assert PASSWORD not in finished.stderr + finished.stdout
    wrong = settings | {"KAFKA_SOURCE__SASL_PASSWORD": "hunter2"}
    refused = place.start(environment=trusting, spark=False, **wrong).wait().failed()
    assert "kafka source 'numbers'" in refused.stderr
    assert str(secure.settings["brokers"]) in refused.stderr
    assert "SASL authentication error" in refused.stderr
    assert "hunter2" not in refused.stderr
    assert refused.seconds < 60
