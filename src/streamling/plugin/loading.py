"""Loads plugins: those of installed packages, those of `plugin.path`, and the samples.

plugin.path       a Python file, a package, or a directory of both, loaded in order of name
entry points      of the group `streamling.plugins`: a module, or a function that registers
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

from streamling.connector import kinds
from streamling.errors import PLUGIN_FAILED, PLUGIN_NOT_LOADED, Caution, PermanentError, StreamlingError, UserError
from streamling.plugin import samples
from streamling.plugin.failures import message_of
from streamling.plugin.registration import (
    PluginKind,
    PluginOrigin,
    Provenance,
    Registration,
    find,
    forget,
    loading,
    registrations,
)
from streamling.spec.settings import Settings

GROUP = "streamling.plugins"
SHIPPED_PLUGINS = "STREAMLING_SHIPPED_PLUGINS"
"""In the environment of workers on a cluster: the directory with the plugins of `plugin.path`."""
MODULE_PREFIX = "streamling_plugin_"
"""The prefix of modules that are loaded by path: they hide no other module."""
_NATIVE = (".so", ".dylib", ".dll", ".pyd")


def load_plugins(settings: Settings) -> list[Caution]:
    """Load all plugins of the application. Raises UserError that names plugin, file and cause.

    Plugins that an earlier call loaded by path are forgotten first. Samples come last: they give way to others.
    """
    forget(Provenance.PATH)
    forget(Provenance.SAMPLE)
    kinds.forget_modules(MODULE_PREFIX)
    load_entry_points()
    paths = _plugins_at(Path(settings.plugin.path)) if settings.plugin.path else ()
    cautions = [caution for path in paths if (caution := load_one(path)) is not None]
    load_samples()
    return cautions


def load_one(path: Path | str) -> Caution | None:
    """Load the plugin in a file or package. Returns a caution if it registers nothing."""
    path = Path(path).absolute()
    before = _registration_count()
    _load(PluginOrigin(Provenance.PATH, str(path)), f"plugin '{path}'", lambda: _import(_local_path(path)))
    if _registration_count() == before:
        return Caution(PLUGIN_NOT_LOADED, f"plugin '{path}' registers nothing")
    return None


def find_again(id_: str, kind: PluginKind, origin: PluginOrigin) -> Registration:
    """A plugin that another process has registered; loaded here if necessary. Raises PermanentError."""
    registration = find(id_, kind)
    if registration is None:
        load_again(origin)
        registration = find(id_, kind)
    if registration is None:
        message = f"{kind.value} plugin '{id_}' is not registered again when it is loaded by a worker"
        raise PermanentError(PLUGIN_FAILED, message, hint="register it wherever the module is imported")
    return registration


def load_again(origin: PluginOrigin) -> None:
    """In a worker: load the plugin of a registration of the driver, unless this process has it.

    Raises UserError. A plugin by path is loaded from the copy that was shipped, if there is one.
    """
    if any(r.origin == origin for r in registrations()):
        return
    match origin.provenance:
        case Provenance.PATH:
            load_one(origin.place)
        case Provenance.ENTRY_POINT:
            load_entry_points()
        case Provenance.SAMPLE:
            load_samples()
        case Provenance.CODE:
            importlib.import_module(origin.place)


def shipped_name(place: str) -> str:
    """Among the shipped plugins, the path of the plugin that the driver has at `place`."""
    return f"{hashlib.sha256(place.encode()).hexdigest()[:16]}/{Path(place).name}"


def _local_path(path: Path) -> Path:
    """Where this process, which may run on another host, has a plugin of the driver."""
    shipped = os.environ.get(SHIPPED_PLUGINS)
    return Path(shipped, shipped_name(str(path))) if shipped else path


def _registration_count() -> int:
    return len(registrations()) + len(kinds.kinds())


def load_samples() -> None:
    """Run the modules of the samples, which register them; again in a process that has run them before."""
    for name in samples.MODULES:
        sys.modules.pop(name, None)
        with loading(PluginOrigin(Provenance.SAMPLE, name)):
            importlib.import_module(name)


def load_entry_points() -> None:
    """Load the plugins of installed packages, once."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        origin = PluginOrigin(Provenance.ENTRY_POINT, f"{point.name} = {point.value}")
        if any(r.origin == origin for r in registrations()):
            continue  # loaded before, and a module is imported once

        def load(point: importlib.metadata.EntryPoint = point) -> None:
            target = point.load()
            if callable(target):
                target()

        _load(origin, f"plugin of the entry point '{origin.place}'", load)


def _load(origin: PluginOrigin, described: str, action: Callable[[], None]) -> None:
    try:
        with loading(origin):
            action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything, SystemExit included
        hint = error.hint if isinstance(error, StreamlingError) else None
        message = f"{described} cannot be loaded: {message_of(error)}"
        raise UserError(PLUGIN_NOT_LOADED, message, hint=hint, cause=error) from error


def _plugins_at(path: Path) -> Iterator[Path]:
    """The plugins at a path, in order of name."""
    if not path.exists():
        raise UserError(
            PLUGIN_NOT_LOADED,
            f"plugin.path is '{path}', which does not exist",
            hint="leave it empty to load no plugins",
        )
    if path.is_file() or (path / "__init__.py").is_file():
        yield _check_loadable(path)
        return
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
        hidden = entry.name.startswith((".", "_"))
        native = entry.suffix in _NATIVE
        if not hidden and (native or entry.suffix == ".py" or (entry / "__init__.py").is_file()):
            yield _check_loadable(entry)


def _check_loadable(path: Path) -> Path:
    if path.suffix in _NATIVE:
        message = f"plugin '{path}' is a native library: plugins are Python files or packages"
        raise UserError(PLUGIN_NOT_LOADED, message, hint="native plugins of other runtimes cannot be loaded")
    if path.is_file() and path.suffix != ".py":
        raise UserError(PLUGIN_NOT_LOADED, f"plugin '{path}' is neither a Python file nor a package")
    return path


def _import(path: Path) -> None:
    """Run a plugin as a module under a name of its own, so that it hides no other module."""
    file = path / "__init__.py" if path.is_dir() else path
    name = MODULE_PREFIX + re.sub(r"\W", "_", path.stem)
    for loaded in [key for key in list(sys.modules) if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(path)] if path.is_dir() else None
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
