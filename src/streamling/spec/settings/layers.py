"""Where settings come from: a file, then the environment. Each gives values under paths; later ones win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamling.errors import CONFIG_FILE, UserError, Where
from streamling.spec.config_names import DEFAULT_NAME, SUFFIXES
from streamling.spec.settings.environment_only import PREFIX, VARIABLES
from streamling.spec.yaml import ListNode, MapNode, Node, ScalarNode, compose, described

# Variables of the OpenTelemetry project that win over our own.
_FOREIGN = {
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ("open_telemetry_metrics", "ingestion_endpoint"),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("open_telemetry_metrics", "endpoint_protocol"),
}


@dataclass(frozen=True, slots=True)
class Given:
    """One value somebody gave: text as written, or a list. A file gives it a place, the environment a variable.

    None as the value is a key with nothing behind it, which says nothing.
    """

    path: tuple[str, ...]
    value: object
    variable: str | None = None
    where: Where | None = None
    key: Where | None = None
    """Place of the key."""

    @property
    def origin(self) -> str:
        return self.variable or str(self.key or self.where)


def find_config(config: str | None, cwd: Path) -> Path | None:
    """The settings file to read: the one named, else `config`; each as it is or with a usual suffix.

    A named file that does not exist is a UserError CONFIG_FILE; only the default may be absent.
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


def file_values(path: Path, name: str) -> list[Given]:
    """All values of a settings file, which messages call `name`.

    One that cannot be read or parsed is a UserError CONFIG_FILE.
    """
    try:
        tree = compose(path.read_text("utf-8-sig"), name)
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
        message = f"configuration file '{name}' must be a map, not {described(tree)}"
        raise UserError(CONFIG_FILE, message, where=tree.where)
    return list(_flattened(tree, ()))


def environment_values(environ: Mapping[str, str]) -> list[Given]:
    """All values of the environment except those of RuntimeLimits. Sorted, so that the order never matters."""
    values = []
    for variable, text in sorted(environ.items()):
        name = variable.upper()
        if name.startswith(PREFIX) and name not in VARIABLES:
            path = tuple(name.removeprefix(PREFIX).lower().split("__"))
            values.append(Given(path, text, variable=variable))
    # An empty variable is how shells and containers unset one that is not ours.
    values += [Given(path, environ[name], variable=name) for name, path in _FOREIGN.items() if environ.get(name)]
    return values


def _flattened(node: Node, path: tuple[str, ...], key: Where | None = None) -> Iterator[Given]:
    match node:
        case MapNode(entries=entries) if entries:
            for entry in entries:
                yield from _flattened(entry.value, (*path, entry.key), entry.where)
        case MapNode(where=where) | ScalarNode(value=None, where=where):
            if path:
                yield Given(path, None, where=where, key=key)
        case ListNode(where=where):
            yield Given(path, _texts(node), where=where, key=key)
        case ScalarNode(where=where, text=text):
            yield Given(path, text, where=where, key=key)


def _texts(node: Node) -> object:
    match node:
        case ListNode(items=items):
            return [_texts(item) for item in items]
        case ScalarNode(text=text):
            return text
        case _:
            return node.plain()
