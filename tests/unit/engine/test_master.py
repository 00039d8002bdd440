"""`spark.master` decides where tasks run, and at which address executors reach the driver."""

from __future__ import annotations

import socket

import pytest

from streamling.engine.process.jvm import Jvm
from streamling.engine.process.master import check_reachable, driver_address, is_local
from streamling.engine.process.session import spark_conf
from streamling.errors import PermanentError


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "local[2,3]"])
def test_tasks_run_beside_the_driver(master: str) -> None:
    assert is_local(master)
    conf = spark_conf({"spark.master": master})
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h:6443", "local-cluster[2,1,1024]"])
def test_tasks_run_elsewhere(master: str) -> None:
    assert not is_local(master)
    assert "spark.sql.shuffle.partitions" not in spark_conf({"spark.master": master})


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:7077", "spark://127.0.0.1:7077,10.0.0.9:7077", "k8s://https://127.0.0.1:6443"]
)
def test_the_driver_listens_where_this_machine_sends_to_the_master(master: str) -> None:
    assert driver_address(master) == "127.0.0.1"


@pytest.mark.parametrize("master", ["yarn", "spark://no-such-host.invalid:7077", "spark://"])
def test_what_is_not_known_is_left_to_spark(master: str) -> None:
    conf = spark_conf({"spark.master": master})
    assert not conf.keys() & {"spark.driver.host", "spark.driver.bindAddress"}


def test_a_given_host_of_the_driver_is_used_alone() -> None:
    conf = spark_conf({"spark.master": "spark://127.0.0.1:7077", "spark.driver.host": "driver.example"})
    assert conf["spark.driver.host"] == "driver.example"
    assert "spark.driver.bindAddress" not in conf


def test_java_binds_where_the_driver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    jvm = Jvm(["/bin/sh", "-c", 'test "$SPARK_LOCAL_IP" = 10.1.2.3'], None, address="10.1.2.3", verbose=False)
    try:
        assert jvm._process.wait(10) == 0
    finally:
        jvm.stop()


def test_a_master_that_is_not_there_is_named_at_once() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with pytest.raises(PermanentError, match=rf"no Spark master answers at spark://127.0.0.1:{port} .*refused"):
            check_reachable(f"spark://127.0.0.1:{port}")
        listening.listen()
        check_reachable(f"spark://127.0.0.1:{port}")
        check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")
