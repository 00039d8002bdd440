"""What a user sets for Spark and Java reaches them, and stands in no command line and no file."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import streamling
from streamling.engine.process.jvm import Jvm
from streamling.errors import SETTING_INVALID, UserError

MARK = f"s3c{uuid.uuid4().hex}"
PASSWORD = f"""{MARK}"r\\e't #PW é=:!@/,"""
CONF = {
    "spark.hadoop.fs.s3a.secret.key": PASSWORD,
    "spark.my.setting": PASSWORD,
    "spark.driver.extraJavaOptions": f"{shlex.quote('-Dmy.option=' + PASSWORD)} -Xss5m",
}
PROGRAM = """
import json, os, sys
from pathlib import Path
from streamling.engine.process.engine import Engine
from streamling.engine.process.session import spark_conf

def command_lines():
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield entry.read_bytes().decode(errors="replace")
        except OSError:
            pass

mark, given = json.load(sys.stdin)
conf = spark_conf(given, application="shop")
with Engine(conf) as engine:
    starting = list(command_lines())
    session = engine.session(conf, meanwhile=lambda: None)
    context = session.sparkContext
    worker = context.parallelize([1], 1).map(lambda _: os.getpid()).collect()[0]
    system = context._jvm.java.lang.System
    context.parallelize([(1, 2)], 2).groupByKey().collect()
    own_mask = os.umask(0o027)
    names = ["spark.hadoop.fs.s3a.secret.key", "spark.my.setting", "my.option"]
    print(json.dumps({
        "properties": [system.getProperty(name) for name in names],
        "conf": context.getConf().get("spark.my.setting"),
        "hadoop": context._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
        "commands": [*starting, *command_lines()],
        "masks": [own_mask, context.parallelize([1], 1).map(lambda _: os.umask(0)).collect()[0]],
        "open": [str(file) for file in Path(os.environ["TMPDIR"]).iterdir() if file.stat().st_mode & 0o077],
        "blocks": len(list(Path(os.environ["TMPDIR"]).glob("blockmgr-*"))),
        "worker": Path(f"/proc/{worker}/cmdline").read_text(),
        "files": [
            str(file) for file in Path(os.environ["TMPDIR"]).rglob("*")
            if file.is_file() and mark.encode() in file.read_bytes()
        ],
    }))
"""


@pytest.mark.spark
def test_settings_reach_java_and_are_in_no_command_line_and_no_file(tmp_path: Path) -> None:
    # A library path like this one makes Java execute itself again, with all options on its command line.
    other = tmp_path / "other" / "lib" / "server"
    other.mkdir(parents=True)
    (other / "libjvm.so").touch()
    (tmp_path / "tmp").mkdir()
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(other),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(Path(streamling.__path__[0]).parent),
    }
    conf = CONF | {"spark.local.dir": environment["TMPDIR"]}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(json.dumps([MARK, conf]), timeout=120)
    assert process.returncode == 0, err
    seen = json.loads(out)
    assert seen["properties"] == [PASSWORD] * 3
    assert (seen["conf"], seen["hadoop"]) == (PASSWORD, PASSWORD)
    assert "worker_daemon" in seen["worker"]
    java = [line for line in seen["commands"] if "PythonGatewayServer" in line and "@/dev/fd/" in line]
    assert java
    assert not [line for line in seen["commands"] if MARK in line]
    assert not [line for line in java if "spark.my.setting" in line]
    assert seen["files"] == []
    assert (seen["open"], seen["blocks"]) == ([], 1)
    assert seen["masks"][0] == seen["masks"][1]
    assert MARK not in err


def test_java_options_with_an_open_quote_are_refused_without_showing_them() -> None:
    with pytest.raises(UserError) as caught:
        Jvm.launch(Path("/nowhere/java"), {"spark.driver.extraJavaOptions": "-Dpw='s3cretPW"})
    assert caught.value.condition is SETTING_INVALID
    assert "s3cret" not in str(caught.value)
