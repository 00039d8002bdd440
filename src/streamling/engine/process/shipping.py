"""What executors on other hosts get from the driver: this package, and the plugins that were loaded by path.

Both are sent as archives, which Spark unpacks in the working directory of an executor before its first task. The
directory of the package is on the `PYTHONPATH` of the Python processes there; `plugin/loading.py` finds the plugins.
Libraries are not shipped: they must be installed on the hosts, or be listed in `spark.archives`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import streamling
from streamling.engine.process.master import is_local
from streamling.plugin.loading import MODULE_PREFIX, SHIPPED_PLUGINS, shipped_name
from streamling.plugin.registration import Provenance, registrations

if TYPE_CHECKING:
    from pyspark import SparkContext

_PACKAGE = Path(streamling.__file__).parent
# A task names the Python that runs it; only the executor's host knows which one it has.
_LAUNCHER = '#!/bin/sh\nexec "${PYSPARK_PYTHON:-python3}" "$@"\n'
_LAUNCHER_NAME = "streamling-python"
# In the environment of workers on the driver's host: identifies the plugin files as they were when the pipeline began.
_PLUGINS_STAMP = "STREAMLING_PLUGINS_SEEN"


def ship_package(context: SparkContext, conf: Mapping[str, str]) -> None:
    """Ship this package to all executors, including those that start later. Call it before the first job."""
    # Spark removes this directory when it ends; executors that start later fetch from here.
    drafts = Path(context._temp_dir)
    context.environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [_add(context, drafts, "streamling", _package()), context.environment.get("PYTHONPATH")])
    )
    context.pythonExec = conf.get("spark.pyspark.python") or _launcher(context, drafts)


def ship_plugins(context: SparkContext) -> None:
    """Ship the plugins that are loaded now to the workers. Call it before the first job of a pipeline.

    Workers that have loaded other plugins are not used again: Spark starts new ones if the environment has changed.
    """
    ship_by_value(MODULE_PREFIX)
    plugins = list(_plugins())
    for variable in (SHIPPED_PLUGINS, _PLUGINS_STAMP):
        context.environment.pop(variable, None)
    if plugins and is_local(context.master):
        context.environment[_PLUGINS_STAMP] = _stamp(path for path, _ in plugins)
    elif plugins:
        context.environment[SHIPPED_PLUGINS] = _add(context, Path(context._temp_dir), "streamling-plugins", plugins)


def ship_by_value(prefix: str) -> None:
    """Pickle classes of modules whose name has this prefix by value: workers cannot import them."""
    from pyspark import cloudpickle

    modules = sys.modules.copy()  # at once: other threads import meanwhile, also while a list of items is made
    for module in [module for name, module in modules.items() if name.startswith(prefix)]:
        cloudpickle.register_pickle_by_value(module)


def _stamp(paths: Iterable[Path]) -> str:
    """A text that changes whenever the list of files changes or one of them is written."""
    files = ((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in paths)
    return hashlib.sha256(repr(list(files)).encode()).hexdigest()


def _launcher(context: SparkContext, drafts: Path) -> str:
    """A script that runs the Python named by the environment of the executor's host. Spark makes it executable."""
    script = drafts / _LAUNCHER_NAME
    script.write_text(_LAUNCHER)
    context.addFile(str(script))
    return f"./{_LAUNCHER_NAME}"


def _add(context: SparkContext, drafts: Path, name: str, files: Iterable[tuple[Path, str]]) -> str:
    """Add files to the context as an archive. Returns the directory that contains them on an executor."""
    contents = [(inner, path.read_bytes()) for path, inner in files]
    digest = hashlib.sha256()
    for inner, content in contents:
        digest.update(f"{inner}\0{len(content)}\0".encode() + content)
    directory = f"{name}-{digest.hexdigest()[:16]}"
    archive = drafts / f"{directory}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for inner, content in contents:
            target.writestr(inner, content)
    context.addArchive(f"{archive}#{directory}")
    return directory


def _package() -> Iterator[tuple[Path, str]]:
    for path in sorted(_PACKAGE.rglob("*.py")):
        yield path, str(path.relative_to(_PACKAGE.parent))


def _plugins() -> Iterator[tuple[Path, str]]:
    places = {r.origin.place for r in registrations() if r.origin.provenance is Provenance.PATH}
    for place in sorted(places):
        path, name = Path(place), shipped_name(place)
        if path.is_file():
            yield path, name
        for file in sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file, f"{name}/{file.relative_to(path)}"
