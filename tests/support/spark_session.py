"""Spark in the process of the test, for what is not a pipeline: queries and values by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamling.engine.process.engine import Engine
from streamling.engine.process.launch import QUICK_JAVA
from streamling.engine.process.session import spark_conf


@contextmanager
def spark_session(settings: Mapping[str, str]) -> Iterator[Any]:
    """A session as runs have it, except for these settings."""
    conf = spark_conf({"spark.driver.extraJavaOptions": QUICK_JAVA, **settings})
    with Engine(conf) as engine:
        yield engine.session(conf, meanwhile=lambda: None)
