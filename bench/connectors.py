"""Spark's own connectors for Kafka and Avro, and a driver of Postgres, with a Spark that they fit: there is no set of
them for ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from bench.processes import cache
from streamling.dev.onlooker import Onlooker
from streamling.dev.packages import Artifact, fetched, installed

_SPARK = "4.2.0"
_JARS = (
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


def python() -> Path:
    """The interpreter of an environment that has that Spark; made once."""
    directory = cache() / f"spark-{_SPARK}"
    done = directory / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", f"pyspark=={_SPARK}"]
        subprocess.run(command, check=True, timeout=1800)
        done.touch()
    return directory / "bin" / "python"


def jars() -> list[Path]:
    def fetch(directory: Path, lock: IO[bytes]) -> Path:
        return fetched(f"connectors of Spark {_SPARK}", _JARS, directory, lock, Onlooker())[0].parent

    return sorted(installed(f"spark-connectors-{_SPARK}-jdbc", fetch, Onlooker()).glob("*.jar"))
