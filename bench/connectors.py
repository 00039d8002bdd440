"""What the others are made of: Spark's own connectors for Kafka and Avro, a driver of Postgres, and a Spark that these
fit, as there is no set of them for ours; Flink and its connectors; a client of ClickHouse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from bench.processes import cache
from streamling.dev.observer import Observer
from streamling.dev.packages import Artifact, fetch_artifacts, install

_SPARK, _FLINK = "4.2.0", "2.2.0"
_CLICKHOUSE_CONNECT = "1.12.0"
_SPARK_JARS = (
    Artifact(
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
        494879,
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
    ),
    Artifact(
        "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d",
        92354,
        "org.apache.spark",
        "spark-avro_2.13",
        "4.1.1",
    ),
    Artifact(
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
        64975,
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
    ),
    Artifact(
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
        9215194,
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
    ),
    Artifact(
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
        152289,
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
    ),
    Artifact(
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
        1116727,
        "org.postgresql",
        "postgresql",
        "42.7.8",
    ),
)

_CLICKHOUSE_JARS = (
    Artifact(
        "db2e43b69531b0157b33217a85459771908838c0991e212e24e32b0ecbb6ee98",
        11982089,
        "com.clickhouse",
        "clickhouse-jdbc",
        "0.9.4",
        "all",
    ),
)

_FLINK_JARS = (
    Artifact(
        "4ff8b14df3bcd430a3f98df6fcf5ffa03c80a662d4f5a11006689e53f65fa6cd",
        1045973,
        "org.apache.flink",
        "flink-sql-gateway",
        "2.2.0",
    ),
    Artifact(
        "c7127a6518fba5d6b75eb4692229192e7147ea378e69c7b7cf16d0494057b0c3",
        9777251,
        "org.apache.flink",
        "flink-sql-connector-kafka",
        "4.0.1-2.0",
    ),
    Artifact(
        "dc331e14107ded6e07f5f77321aa06d8019aa9f33654d0658e49648409b5b80d",
        23075867,
        "org.apache.flink",
        "flink-sql-avro-confluent-registry",
        "2.2.0",
    ),
)


def spark_python() -> Path:
    """The interpreter of an environment that has that Spark."""
    return _environment(f"spark-{_SPARK}", f"pyspark=={_SPARK}") / "bin" / "python"


def spark_jars() -> list[Path]:
    return _jars(f"spark-connectors-{_SPARK}-jdbc", f"connectors of Spark {_SPARK}", _SPARK_JARS)


def clickhouse_python() -> Path:
    """The interpreter of an environment that has the usual client of ClickHouse."""
    package = f"clickhouse-connect[arrow]=={_CLICKHOUSE_CONNECT}"
    return _environment(f"clickhouse-connect-{_CLICKHOUSE_CONNECT}", package) / "bin" / "python"


def clickhouse_jars() -> list[Path]:
    return _jars("clickhouse-jdbc-0.9.4", "the JDBC driver of ClickHouse", _CLICKHOUSE_JARS)


def flink_jars() -> list[Path]:
    """Flink itself, its SQL client, and the connectors."""
    directory = _environment(f"flink-{_FLINK}", f"apache-flink-libraries=={_FLINK}")
    own = [
        jar for folder in ("lib", "opt") for jar in directory.glob(f"lib/python*/site-packages/pyflink/{folder}/*.jar")
    ]
    return sorted(own) + _jars(f"flink-sql-{_FLINK}", f"the SQL of Flink {_FLINK}", _FLINK_JARS)


def _environment(name: str, package: str) -> Path:
    """A virtual environment with one package; made once."""
    directory = cache() / name
    done = directory / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", package]
        subprocess.run(command, check=True, timeout=1800)
        done.touch()
    return directory


def _jars(name: str, described: str, artifacts: Sequence[Artifact]) -> list[Path]:
    def fetch(directory: Path, lock: IO[bytes]) -> Path:
        return fetch_artifacts(described, artifacts, directory, lock, Observer())[0].parent

    return sorted(install(name, fetch, Observer()).glob("*.jar"))
