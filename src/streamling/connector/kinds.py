"""The table of the kinds of nodes. Built-in connectors and plugins register in the same way."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from streamling.connector.lookup import Lookup
from streamling.connector.sink import Sink
from streamling.connector.source import Source
from streamling.connector.table import TableBackend
from streamling.connector.transform import Transform
from streamling.errors import INTERNAL, BugError
from streamling.plan.contract import Discovery
from streamling.spec.pipeline import Kinds, NodeSpec, OptionsModel, Role
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.settings import Settings

Probe = Callable[[NodeSpec, Settings, float], Discovery]
"""Looks up the columns of a source or a lookup within the given number of seconds. Raises StreamlingError."""
Connector = Source | Transform | Sink | Lookup | TableBackend


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of node: its options in YAML, and how to build it from them.

    `build` neither checks what the options model can check nor touches the outside world: `open` does.
    A kind without `build` that the planner does not compile can be validated, not run.
    """

    role: Role
    name: str
    """The value of `type:` in YAML."""
    options: type[NodeOptions]
    build: Callable[[NodeSpec, Settings], Connector] | None = None
    probe: Probe | None = None
    """Looks up the columns of a source or a lookup in the outside world, where the file does not declare them."""
    compiled: bool = False
    """The planner turns the node into a query; nothing has to be built."""
    samples: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Field values for a first pipeline: for optional fields, or where the usual value would not work."""

    @property
    def runs(self) -> bool:
        return self.build is not None or self.compiled

    @property
    def about(self) -> str:
        """The first sentence of its module, or of its options model if the module is not named after it."""
        module = (inspect.getdoc(sys.modules[self.options.__module__]) or "").split("\n\n")[0]
        named, _, sentence = " ".join(module.split()).partition(": ")
        own = " ".join((inspect.getdoc(self.options) or "").split()).partition(". ")[0]
        text = sentence if named == f"`{self.name}`" else own
        return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""

    @property
    def built_in(self) -> bool:
        return _is_built_in(self.role, self.name)


# The module of every built-in kind is named after it and registers it when it is imported, which happens when a
# pipeline first uses it. None of them imports Arrow or Spark before it runs.
_BUILT_IN = {
    Role.SOURCE: ("clickhouse", "file", "generator", "hybrid", "kafka"),
    Role.TRANSFORM: ("dynamic_table", "handler", "lookup", "python", "script", "sql"),
    Role.SINK: (
        "blackhole",
        "clickhouse",
        "file",
        "kafka",
        "memory",
        "postgres",
        "postgres_aggregate",
        "print",
        "webhook",
    ),
}
_kinds: dict[tuple[Role, str], Kind] = {}
_plugin_kinds: dict[tuple[Role, str], Kind] = {}


def register(kind: Kind) -> None:
    """Add a kind. A name can be registered once per role; the names of built-in kinds are reserved.

    A module that is loaded again, as those of `plugin.path` are before every run, registers its kinds again.
    """
    key = (kind.role, kind.name)
    if _is_built_in(*key):
        is_taken = key in _kinds or not kind.options.__module__.startswith(_module_of(*key))
    else:
        known = _kinds.get(key)
        is_taken = key in _plugin_kinds or (known is not None and known.options.__module__ != kind.options.__module__)
    if is_taken:
        raise BugError(INTERNAL, f"{kind.role} type {kind.name!r} is registered twice")
    _kinds[key] = kind


def forget_modules(prefix: str) -> None:
    """Remove the kinds of modules whose name begins with the prefix."""
    for key in [key for key, kind in _kinds.items() if kind.options.__module__.startswith(prefix)]:
        del _kinds[key]


def add_plugin_kind(kind: Kind) -> None:
    """Add the kind of a plugin; it can be removed again."""
    _plugin_kinds[kind.role, kind.name] = kind


def remove_plugin_kind(role: Role, name: str) -> None:
    del _plugin_kinds[role, name]


def is_built_in(name: str) -> bool:
    """Whether there is a built-in kind of this name, in any role."""
    return any(name in names for names in _BUILT_IN.values())


def built_in_kinds() -> list[tuple[Role, str]]:
    """The kinds that exist without plugins."""
    return [(role, name) for role, names in _BUILT_IN.items() for name in names]


def kinds() -> Kinds:
    """The options model of every kind, as the pipeline loader needs them."""
    return _OptionsModels()


def all_kinds() -> Iterator[Kind]:
    """Every kind, by role and name. Loads all of them."""
    for role, name in sorted(kinds(), key=lambda key: (list(Role).index(key[0]), key[1])):
        yield _kind(role, name)


def kind_of(node: NodeSpec) -> Kind:
    return _kind(node.role, node.type)


def build(node: NodeSpec, settings: Settings) -> Connector:
    """The connector of a node that is not compiled."""
    make = kind_of(node).build
    if make is None:
        raise BugError(INTERNAL, f"{node.described()} has no connector", node=node.name)
    return make(node, settings)


class _OptionsModels(Mapping[tuple[Role, str], OptionsModel]):
    """All kinds by role and name, plugins last; one is loaded when it is looked up."""

    def __getitem__(self, key: tuple[Role, str]) -> OptionsModel:
        return _kind(*key).options

    def __iter__(self) -> Iterator[tuple[Role, str]]:
        return iter(dict.fromkeys((*built_in_kinds(), *_kinds, *sorted(_plugin_kinds))))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _kind(role: Role, name: str) -> Kind:
    if (role, name) not in _kinds and _is_built_in(role, name):
        import_module(_module_of(role, name))
    return _plugin_kinds[role, name] if (role, name) in _plugin_kinds else _kinds[role, name]


def _is_built_in(role: Role, name: str) -> bool:
    return name in _BUILT_IN[role]


def _module_of(role: Role, name: str) -> str:
    return f"streamling.{role.section}.{name}"
