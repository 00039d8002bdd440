"""Executors on other hosts get the package and the plugins, and use their own Python."""

from __future__ import annotations

import gc
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from streamling.engine.process.shipping import ship_by_value, ship_package, ship_plugins
from streamling.plugin.loading import SHIPPED_PLUGINS, load_again, load_plugins
from streamling.plugin.registration import Provenance, forget, registrations
from streamling.spec.settings import Settings

PLUGIN = """
import pyarrow as pa
from streamling.plugin import register_udf
register_udf("acme_same", [pa.int64()], pa.int64(), lambda ids: ids)
FILE = __file__
"""


class Context:
    """What shipping uses of a SparkContext, and a directory as executors see it."""

    def __init__(self, directory: Path) -> None:
        self._temp_dir = str(directory / "driver")
        self.executor = directory / "executor"
        self.environment: dict[str, str] = {}
        self.pythonExec = "python of the driver"
        self.master = "spark://elsewhere:7077"
        Path(self._temp_dir).mkdir()

    def addArchive(self, name: str) -> None:
        path, _, directory = name.partition("#")
        zipfile.ZipFile(path).extractall(self.executor / directory)

    def addFile(self, path: str) -> None:
        (self.executor / Path(path).name).write_bytes(Path(path).read_bytes())


@pytest.fixture
def context(tmp_path: Path) -> Any:
    return Context(tmp_path)


@pytest.fixture
def plugins(tmp_path: Path) -> Any:
    """A directory with a package that has been loaded."""
    package = tmp_path / "plugins" / "acme"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PLUGIN)
    (package / "data.txt").write_text("beside it")
    load_plugins(Settings.model_validate({"plugin": {"path": str(tmp_path / "plugins")}}))
    yield package
    load_plugins(Settings())


def test_the_package_is_importable_there(context: Any) -> None:
    context.environment["PYTHONPATH"] = "/given"
    ship_package(context, {})
    ours, given = context.environment["PYTHONPATH"].split(":")
    assert (context.executor / ours / "streamling" / "engine" / "process" / "worker_daemon.py").is_file()
    assert given == "/given"
    assert SHIPPED_PLUGINS not in context.environment


def test_python_is_that_of_the_host_unless_it_is_set(context: Any) -> None:
    ship_package(context, {})
    assert context.pythonExec == "./streamling-python"
    assert "PYSPARK_PYTHON" in (context.executor / "streamling-python").read_text()
    ship_package(context, {"spark.pyspark.python": "./environment/bin/python"})
    assert context.pythonExec == "./environment/bin/python"


def test_a_plugin_is_loaded_again_from_its_shipped_copy(
    context: Any, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship_plugins(context)
    (origin,) = {r.origin for r in registrations() if r.origin.provenance is Provenance.PATH}
    load_again(origin)  # known here: nothing happens
    forget(Provenance.PATH)
    shipped = context.executor / context.environment[SHIPPED_PLUGINS]
    monkeypatch.setenv(SHIPPED_PLUGINS, str(shipped))
    for file in plugins.iterdir():  # another host has no such directory
        if file.is_file():
            file.unlink()
    load_again(origin)
    (again,) = [r for r in registrations() if r.origin == origin]
    file = Path(again.target.__globals__["FILE"])
    assert file.is_relative_to(shipped)
    assert file.with_name("data.txt").read_text() == "beside it"


def test_a_pipeline_without_plugins_ships_none(context: Any, plugins: Path) -> None:
    ship_plugins(context)
    load_plugins(Settings())
    ship_plugins(context)
    assert context.environment == {}


def test_plugins_that_have_changed_get_workers_of_their_own(context: Any, plugins: Path) -> None:
    """Spark keeps workers by their environment."""
    context.master = "local[2]"
    ship_plugins(context)
    before = dict(context.environment)
    ship_plugins(context)
    assert context.environment == before
    (plugins / "data.txt").write_text("longer than before")
    ship_plugins(context)
    assert context.environment.keys() == before.keys()
    assert context.environment != before


class _Importing:
    """Imports a module when the garbage collector finds it, as code of other threads may at any allocation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cycle = self

    def __del__(self) -> None:
        sys.modules[self.name] = types.ModuleType(self.name)


def test_modules_may_be_imported_while_the_others_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5000):
        monkeypatch.setitem(sys.modules, f"imported_{n}", types.ModuleType("imported"))
    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        for n in range(20):
            _Importing(f"imported_later_{n}")
            ship_by_value("no_such_module")
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert all(sys.modules.pop(f"imported_later_{n}", None) for n in range(20))
