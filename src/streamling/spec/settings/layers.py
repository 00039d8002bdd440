"""The layers that settings come from: a file, then the environment. Each gives values by path; later ones win."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamling.errors import CONFIG_FILE, UserError, Where
from streamling.spec.config_names import DEFAULT_NAME, SUFFIXES
from streamling.spec.settings.environment_only import PREFIX, VARIABLES
from streamling.spec.yaml import ListNode, MapNode, Node, ScalarNode, compose, describe

# Variables defined by OpenTelemetry, which override our own.
_FOREIGN = {
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ("open_telemetry_metrics", "ingestion_endpoint"),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ("open_telemetry_metrics", "traces_endpoint"),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("open_telemetry_metrics", "endpoint_protocol"),
}


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One value from a layer: text as written, or a list. From a file it has a position, else a variable.

    The value None is a key without a value, which sets nothing.
    """

    path: tuple[str, ...]
    value: object
    variable: str | None = None
    where: Where | None = None
    key: Where | None = None
    """Position of the key."""

    @property
    def origin(self) -> str:
        return self.variable or str(self.key or self.where)


def find_config(config: str | None, cwd: Path) -> Path | None:
    """The settings file to read: `config`, else the default name; each as it is or with one of the suffixes.

    Raises UserError CONFIG_FILE if a named file does not exist; only the default may be absent.
    """
    name = DEFAULT_NAME if config is None else config
    for suffix in SUFFIXES:
        path = cwd / f"{name}{suffix}"
        if path.is_file():
            return path
    if config is None:
        return None
    tried = ", ".join(f"{config}{suffix}" for suffix in SUFFIXES)
    raise UserError(CONFIG_FILE, f"configuration file '{config}' not found in '{cwd}'; tried: {tried}")


def file_values(path: Path, name: str, public: Collection[str]) -> list[SettingValue]:
    """All values of a settings file, which messages call `name`; they quote only values of the keys in `public`.

    Raises UserError CONFIG_FILE if it cannot be read or parsed.
    """
    try:
        tree = compose(path.read_text("utf-8-sig"), name, public)
    except OSError as error:
        reason = error.strerror
        raise UserError(CONFIG_FILE, f"configuration file '{name}' cannot be read: {reason}", cause=error) from error
    except UnicodeDecodeError as error:
        raise UserError(CONFIG_FILE, f"configuration file '{name}' is not UTF-8 text", cause=error) from error
    except UserError as error:
        message = f"configuration file '{name}': {error.message}"
        raise UserError(CONFIG_FILE, message, where=error.where, hint=error.hint, cause=error) from error
    if tree is None:
        return []
    if not isinstance(tree, MapNode):
        message = f"configuration file '{name}' must be a map, not {describe(tree)}"
        raise UserError(CONFIG_FILE, message, where=tree.where)
    return list(_flatten(tree, ()))


def environment_values(environ: Mapping[str, str]) -> list[SettingValue]:
    """All values of the environment except those of RuntimeLimits, sorted so that their order never matters."""
    values = []
    for variable, text in sorted(environ.items()):
        name = variable.upper()
        if name.startswith(PREFIX) and name not in VARIABLES:
            path = tuple(name.removeprefix(PREFIX).lower().split("__"))
            values.append(SettingValue(path, text, variable=variable))
    # Shells and containers unset a variable by making it empty.
    values += [SettingValue(path, environ[name], variable=name) for name, path in _FOREIGN.items() if environ.get(name)]
    return values


def _flatten(node: Node, path: tuple[str, ...], key: Where | None = None) -> Iterator[SettingValue]:
    match node:
        case MapNode(entries=entries) if entries:
            for entry in entries:
                yield from _flatten(entry.value, (*path, entry.key), entry.where)
        case MapNode(where=where) | ScalarNode(value=None, where=where):
            if path:
                yield SettingValue(path, None, where=where, key=key)
        case ListNode(where=where):
            yield SettingValue(path, _texts(node), where=where, key=key)
        case ScalarNode(where=where, text=text):
            yield SettingValue(path, text, where=where, key=key)


def _texts(node: Node) -> object:
    match node:
        case ListNode(items=items):
            return [_texts(item) for item in items]
        case ScalarNode(text=text):
            return text
        case _:
            return node.plain()
