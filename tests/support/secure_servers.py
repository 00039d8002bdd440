"""A broker and a registry that ask who you are, over TLS with certificates of a private authority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme
from cryptography.hazmat.primitives import serialization

from streamling.dev.kafka import KafkaServer
from streamling.dev.registry import RegistryServer
from streamling.dev.server import HOST, Site
from streamling.dev.stack import Stack
from support.kafka_broker import KafkaBroker
from support.local_stack import local_stack
from support.schema_registry import SchemaRegistry

USER, PASSWORD = "alice", "open sesame #1"

# The plain listener stays, for the tests themselves, which may do anything. Others may do what no rule forbids.
_LISTENER = """
listeners=CLIENTS://{host}:{port},SECURE://{host}:{secure},CONTROLLER://{host}:{controller}
advertised.listeners=CLIENTS://{host}:{port},SECURE://{host}:{secure}
listener.security.protocol.map=CLIENTS:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={certificate}
listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
"""


class SecureKafka(KafkaServer):
    inner_ports = ("controller", "secure")

    def __init__(self, certificate: Path) -> None:
        self._certificate = certificate

    def command(self, home: Path, site: Site) -> list[str]:
        command = super().command(home, site)
        ports = {"port": site.ports["kafka"], "secure": site.ports["secure"], "controller": site.ports["controller"]}
        more = _LISTENER.format(host=HOST, certificate=self._certificate, user=USER, password=PASSWORD, **ports)
        with (site.directory / "server.properties").open("a") as file:
            file.write(more)
        return command

    def configure(self, site: Site) -> None:
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin = AdminClient({"bootstrap.servers": self.address(site)})
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(20)


class SecureRegistry(RegistryServer):
    inner_ports = ("management", "secure")

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key

    def command(self, home: Path, site: Site) -> list[str]:
        java, *rest = super().command(home, site)
        users = "quarkus.security.users.embedded"
        properties = {
            "quarkus.http.ssl-port": site.ports["secure"],
            "quarkus.http.ssl.certificate.files": self._certificate,
            "quarkus.http.ssl.certificate.key-files": self._key,
            "quarkus.http.auth.basic": "true",
            f"{users}.enabled": "true",
            f"{users}.plain-text": "true",
            f"{users}.users.{USER}": PASSWORD,
            f"{users}.roles.{USER}": "sr-admin",
            "apicurio.auth.role-based-authorization": "true",
        }
        return [java, *(f"-D{key}={value}" for key, value in properties.items()), *rest]

    def ping(self, site: Site) -> None:
        answer = httpx.get(f"{self.address(site)}/subjects", timeout=5, auth=(USER, PASSWORD), trust_env=False)
        answer.raise_for_status()

    def configure(self, site: Site) -> None:
        return


@dataclass(frozen=True)
class SecureServers:
    """`settings` is what reaches them: values of `kafka_source`. `authority` is the file that vouches for them."""

    kafka: KafkaBroker
    registry: SchemaRegistry
    authority: Path
    settings: dict[str, str]

    def register(self, subject: str, schema: str) -> int:
        url = f"{self.registry.url}/subjects/{subject}/versions"
        answer = httpx.post(url, json={"schema": schema}, auth=(USER, PASSWORD), timeout=30)
        return int(answer.raise_for_status().json()["id"])


@contextmanager
def secure_servers(directory: Path) -> Iterator[SecureServers]:
    authority = trustme.CA()
    leaf = authority.issue_cert(HOST, "localhost")
    files: dict[str, Path] = {name: directory / f"{name}.pem" for name in ("authority", "chain", "key", "both")}
    authority.cert_pem.write_to_path(files["authority"])
    leaf.cert_chain_pems[0].write_to_path(files["chain"])
    files["key"].write_bytes(_as_java_reads_it(leaf.private_key_pem.bytes()))
    files["both"].write_bytes(files["key"].read_bytes() + files["chain"].read_bytes())
    servers: dict[str, Any] = {
        "kafka": SecureKafka(files["both"]),
        "registry": SecureRegistry(files["chain"], files["key"]),
    }
    with local_stack(servers) as stack:
        yield _started(stack, files["authority"])


def _as_java_reads_it(key: bytes) -> bytes:
    loaded = serialization.load_pem_private_key(key, password=None)
    form = serialization.PrivateFormat.PKCS8
    return loaded.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _started(stack: Stack, authority: Path) -> SecureServers:
    kafka, registry = KafkaBroker(stack), SchemaRegistry(stack)
    settings = {
        "brokers": f"{HOST}:{kafka.site.ports['secure']}",
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "schema_registry_url": f"https://{HOST}:{registry.site.ports['secure']}/apis/ccompat/v7",
        "schema_registry_username": USER,
        "schema_registry_password": PASSWORD,
    }
    return SecureServers(kafka, registry, authority, settings)
