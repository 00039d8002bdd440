"""Finds the setting that each value of a file or of the environment belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from streamling.errors import SETTING_INVALID, UserError
from streamling.spec.faults import Fault, nearest
from streamling.spec.mask import MASK, is_secretive
from streamling.spec.settings.environment_only import is_limit
from streamling.spec.settings.layers import SettingValue
from streamling.spec.settings.spark_conf import conf_name, restore_case

Key = tuple[str, ...]

_ALIASES: dict[Key, str] = {("clickhouse_source", "block_range"): "sort_key_range"}
# Belongs to the test suite of another program; accepted so that its files can be used.
_IGNORED = "test_settings"
_HIDDEN = {("runtime",), ("plugin", "own")}
_CONNECTION = ("host", "port", "user", "pass", "db", "sslmode")
_SECRET_MAPS = {"http_secret_header", "http_secret_value"}
_OPTION_MAPS = {("plugin", "preprocessor_options"), ("plugin", "side_output_options")}


def connection_name(sink: str) -> str:
    """A sink's name as the key of its connection: lower-case letters and digits, runs of others become one `_`."""
    return re.sub(r"[\W_]+", "_", sink.lower()).strip("_")


def secret_name(name: str) -> str:
    """A secret's name as the key of its header and value: lower-case letters and digits, each other one becomes `_`."""
    return re.sub(r"[\W_]", "_", name.lower())


class SettingTree:
    """The values of all layers under the keys of a model; later layers override earlier ones.

    `warnings` and `problems` are about values that do not belong to any key.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self._settings: dict[Key, SettingValue] = {}
        self.values: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.problems: list[UserError] = []

    def put_all(self, layer: Iterable[SettingValue]) -> None:
        """Add the values of one layer; they override those of earlier layers."""
        for setting in layer:
            self._put(setting)

    def suggest(self, key: Key, value: object) -> None:
        """Set a default that depends on other settings."""
        if key not in self._settings:
            self._set(key, value)

    def inherit(self, base: Key, heirs: Key, model: type[BaseModel]) -> None:
        """Copy keys that an entry of the map `heirs` does not set from `base`."""
        common: Any = self.values
        for part in base:
            common = common.get(part, {}) if isinstance(common, dict) else {}
        for name in {key[len(heirs)] for key in self._settings if key[: len(heirs)] == heirs}:
            for field in _names(model, ()):
                if (*heirs, name, field) not in self._settings and field in common:
                    self._set((*heirs, name, field), common[field])

    def problem(self, fault: Fault) -> UserError | None:
        """The fault of a model as an error with the origin of the value. None if it is reported for another key."""
        key = tuple(str(part) for part in fault.path)
        setting = next((self._settings[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._settings), None)
        if setting is None and key[0] == "postgres_sink_connections":
            return None  # inherited, so reported for the key it comes from
        origin = f" (from {setting.variable})" if setting is not None and setting.variable else ""
        return UserError(
            SETTING_INVALID, fault.sentence + origin, where=setting.where if setting else None, hint=fault.hint
        )

    def _put(self, setting: SettingValue) -> None:
        if setting.path[0].lower() == _IGNORED:
            return
        if is_limit(setting.path):
            variable = "STREAMLING__" + "__".join(setting.path).upper()
            self.warnings.append(f"'{_dotted(setting.path)}' ({setting.origin}) is ignored; set {variable} instead")
            return
        if setting.value is None:
            # Any key under `plugin` may be the name of a plugin.
            if setting.path[0].lower() != "plugin" and _known_depth(self._model, setting.path) < len(setting.path):
                self._unknown(setting)
            return
        key = self._key(setting)
        if key is not None:
            self._check_spelling(key, setting)
            value = setting.value
            if key[0] == "spark" and isinstance(value, list):
                value = ",".join(str(part) for part in value)
            self._set(key, value)
            self._settings[key] = setting

    def _check_spelling(self, key: Key, setting: SettingValue) -> None:
        """Warns if a file has one key in two spellings: the later one counts, which is probably not intended."""
        first = self._settings.get(key)
        if first is not None and first.variable is None and setting.variable is None:
            names = f"'{_dotted(setting.path)}' ({setting.origin}) is the same setting as '{_dotted(first.path)}'"
            self.warnings.append(f"{names} ({first.origin}), which is ignored")

    def _set(self, key: Key, value: object) -> None:
        inner = self.values
        for part in key[:-1]:
            below = inner.setdefault(part, {})
            if not isinstance(below, dict):
                below = inner[part] = {}
            inner = below
        inner[key[-1]] = value

    def _key(self, setting: SettingValue) -> Key | None:
        """The key of a value: field names are those of the model, names of map entries those of `setting`."""
        model = self._model
        key: Key = ()
        rest = setting.path
        while rest:
            names = _names(model, key)
            part = _ALIASES.get((*key, rest[0].lower()), rest[0].lower())
            if part not in names:
                if key == ("plugin",) and len(rest) > 1:
                    return ("plugin", "own", part, "__".join(rest[1:]).lower())
                return self._unknown(setting)
            key, rest, annotation = (*key, part), rest[1:], names[part]
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                model = annotation
            elif _is_map(key):
                return self._entry(key, rest, setting)
            else:
                return self._leaf(key, rest, setting)
        return self._refuse(setting, "must be a map")

    def _leaf(self, key: Key, rest: tuple[str, ...], setting: SettingValue) -> Key | None:
        if not rest:
            return key
        if setting.variable is not None:
            return self._unknown(setting)
        return self._refuse(setting, f"is not a setting: '{_dotted(key)}' is a single value, not a map")

    def _entry(self, key: Key, rest: tuple[str, ...], setting: SettingValue) -> Key | None:
        """The key of one entry of a map whose names the user chooses."""
        least = 1 if key == ("spark",) or key[0] in _SECRET_MAPS else 2
        if len(rest) < least:
            return self._refuse(
                setting, "must be a map" if not rest else f"must be a map: '{_dotted(key)}' is a map of maps"
            )
        if key == ("spark",):
            name = conf_name(rest)
            names = self.values.get("spark", {})
            return (*key, restore_case(name, names) if setting.variable is not None else name)
        if key[0] in _SECRET_MAPS:
            return (*key, secret_name("__".join(rest)))
        if key == ("postgres_sink_connections",):
            if rest[-1].lower() not in _CONNECTION:
                return self._unknown(setting)
            return (*key, connection_name("_".join(rest[:-1])), rest[-1].lower())
        return (*key, *self._as_written(key, rest[0], "__".join(rest[1:]), setting))

    def _as_written(self, key: Key, name: str, option: str, setting: SettingValue) -> Key:
        """Variables have no case: they override the entry that a file wrote with case, if there is one."""
        if setting.variable is None:
            return (name, option)
        for other in self._settings:
            if other[:-2] == key and other[-2].lower() == name and other[-1].lower() == option:
                return other[-2:]
        names = [other[-2] for other in self._settings if other[:-2] == key and other[-2].lower() == name]
        return (names[0] if names else name, option)

    def _unknown(self, setting: SettingValue) -> Key | None:
        name = _dotted(setting.path)
        hint = self._hint(setting.path)
        message = f"unknown setting '{name}' ({setting.origin}) is ignored"
        self.warnings.append(f"{message}; {hint}" if hint else message)
        return None

    def _hint(self, path: Key) -> str | None:
        parts = tuple(part for written in path for part in written.split("."))
        if parts != path and _known_depth(self._model, parts) == len(parts):
            block = 1 if parts[0].lower() == "spark" else len(parts) - 1
            return f"dots do not nest keys: write '{_dotted(parts[block:])}' under '{_dotted(parts[:block])}:'"
        suggestion = _nearest_key(self._model, tuple(part.lower() for part in path))
        return f"did you mean '{suggestion}'?" if suggestion is not None else None

    def _refuse(self, setting: SettingValue, text: str) -> Key | None:
        origin = f" (from {setting.variable})" if setting.variable else ""
        self.problems.append(
            UserError(SETTING_INVALID, f"'{_dotted(setting.path)}' {text}{origin}", where=setting.where)
        )
        return None


def _names(model: type[BaseModel], key: Key) -> dict[str, Any]:
    """The keys of a block, each with its annotation."""
    return {
        alias: field.annotation
        for name, field in model.model_fields.items()
        if (*key, alias := field.alias or name) not in _HIDDEN
    }


def _known_depth(model: type[BaseModel], path: Key) -> int:
    """How many leading parts of a path are existing keys; all of them if the user chooses the names."""
    key: Key = ()
    for number, part in enumerate(path):
        names = _names(model, key)
        part = _ALIASES.get((*key, part.lower()), part.lower())
        if part not in names:
            return len(path) if key == ("plugin",) and len(path) > 2 else number
        key, annotation = (*key, part), names[part]
        if _is_map(key):
            return len(path)
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return number + 1
        model = annotation
    return len(path)


def _nearest_key(model: type[BaseModel], path: Key) -> str | None:
    """The key that was most likely meant, part by part: a block that exists is taken as meant."""
    top = model
    key: Key = ()
    for number, part in enumerate(path):
        names = _names(model, key)
        name = part if part in names else nearest(part, names)
        if name is None:
            if number == 0:
                return nearest(_dotted(path), _all_keys(top, ()))
            return _dotted(key) if key != path[:number] else None
        key, annotation = (*key, name), names[name]
        if key == ("postgres_sink_connections",) and number + 2 < len(path):
            last = nearest(path[-1], _CONNECTION)
            return _dotted((*key, *path[number + 1 : -1], last)) if last else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return _dotted((*key, *path[number + 1 :]))
        model = annotation
    return _dotted(key)


def all_leaves(model: type[BaseModel]) -> Iterator[str]:
    """The last parts of the keys of all settings except maps whose names the user chooses."""
    return (key.rpartition(".")[2] for key in _all_keys(model, ()) if not _is_map(tuple(key.split("."))))


def _all_keys(model: type[BaseModel], key: Key) -> Iterator[str]:
    for name, annotation in _names(model, key).items():
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _all_keys(annotation, (*key, name))
        else:
            yield _dotted((*key, name))


def _is_map(key: Key) -> bool:
    return key in _OPTION_MAPS or key in {("spark",), ("postgres_sink_connections",)} or key[0] in _SECRET_MAPS


def _dotted(key: Key) -> str:
    """The key in messages. What is below the key of a secret may be the secret itself, written as a map; so may be what
    follows a colon without a space."""
    key = tuple(f"{part.partition(':')[0]}:{MASK}" if ":" in part and is_secretive(part) else part for part in key)
    for number, part in enumerate(key[:-1]):
        if is_secretive(part):
            # The entries of these maps have names; what is below them is one of the secrets.
            shown = number + (2 if part.lower() in _SECRET_MAPS else 1)
            return ".".join((*key[:shown], *([MASK] if key[shown:] else [])))
    return ".".join(key)
