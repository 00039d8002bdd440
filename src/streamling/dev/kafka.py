"""`kafka`: one broker, which is also the controller (KRaft)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from pathlib import Path

from streamling.dev.java_server import JavaServer
from streamling.dev.server import HOST, Site

_PING_SECONDS = 2.0
# No retention limit: messages with timestamps of years ago must not be deleted. A topic must be created before it is
# used, as on most production clusters. There is one broker, so there is one replica.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=CLIENTS://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=CLIENTS://{host}:{port}
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
log.dirs=data
log.retention.ms=-1
log.cleaner.backoff.ms=500
auto.create.topics.enable=false
message.max.bytes=10485760
# After a crash the controller accepts the broker again only when its old session has ended.
broker.session.timeout.ms=5000
broker.heartbeat.interval.ms=1000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
# In the process of the server, so that formatting is completed even if the command that started it is killed.
_FORMAT_AND_RUN = """
[ -e data/meta.properties ] ||
    "$@" kafka.tools.StorageTool format --config server.properties --cluster-id="$0" --ignore-formatted || exit
exec "$@" kafka.Kafka server.properties
"""


class KafkaServer(JavaServer):
    name = product = "kafka"
    version = "4.3.1"
    title = f"Kafka {version}"
    oldest_java = 17
    port = 9092
    inner_ports = ("controller",)
    memory = 450_000_000
    # Ten times the duration on an idle machine, including the first start.
    start_seconds = 90.0
    stop_seconds = 20.0

    def unpack(self, files: Sequence[Path]) -> Path:
        return files[0].parent

    def command(self, home: Path, site: Site) -> list[str]:
        properties = _PROPERTIES.format(host=HOST, port=site.ports[self.name], controller=site.ports["controller"])
        (site.directory / "server.properties").write_text(properties)
        program = [str(self.java()), "-Xmx384m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dlog4j2.level=WARN"]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        return ["/bin/sh", "-c", _FORMAT_AND_RUN, cluster, *program, "-cp", f"{home}/*"]

    def ping(self, site: Site) -> None:
        import socket

        from confluent_kafka.admin import AdminClient

        # The client retries until its timeout; a plain connection shows at once whether anything listens.
        socket.create_connection((HOST, site.ports[self.name]), timeout=_PING_SECONDS).close()
        client = AdminClient({"bootstrap.servers": self.address(site), "log_level": 0})
        metadata = client.list_topics(timeout=_PING_SECONDS)
        cluster = _cluster(site.directory / "data" / "meta.properties")
        if metadata.cluster_id != cluster:
            raise RuntimeError(
                f"another broker answers on this port: its cluster id is {metadata.cluster_id}, not {cluster}"
            )
        if metadata.controller_id < 0:
            raise RuntimeError("there is no controller yet")

    def address(self, site: Site) -> str:
        return f"{HOST}:{site.ports[self.name]}"

    def variables(self, site: Site) -> dict[str, str]:
        return {f"STREAMLING__KAFKA_{role}__BROKERS": self.address(site) for role in ("SOURCE", "SINK")}


def _cluster(file: Path) -> str | None:
    lines = file.read_text().splitlines()
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)
