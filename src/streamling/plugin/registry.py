"""The kinds of nodes there are. Built-in connectors and plugins register in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamling.errors import INTERNAL, BugError
from streamling.plan.contract import Discovery
from streamling.plugin.contract import Sink, Source
from streamling.spec.options import NodeOptions
from streamling.spec.pipeline import Kinds, NodeSpec, Role
from streamling.spec.settings import Settings

Probe = Callable[[NodeSpec, Settings, float], Discovery]
"""Looks a source up, within the given number of seconds. Raises StreamlingError."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of node: what its YAML may say, and how it is made from it.

    `build` checks nothing that the options model can check and touches nothing outside: that is `open`'s.
    A kind without `build` that the planner does not compile can be validated, not run.
    """

    role: Role
    name: str
    """What `type:` says in YAML."""
    options: type[NodeOptions]
    build: Callable[[NodeSpec, Settings], Source | Sink] | None = None
    probe: Probe | None = None
    """Asks the outside world for the columns of a source, where the file does not declare them."""
    compiled: bool = False
    """The planner turns the node into a query; nothing has to be built."""

    @property
    def runs(self) -> bool:
        return self.build is not None or self.compiled


_kinds: dict[tuple[Role, str], Kind] = {}


def register(kind: Kind) -> None:
    if (kind.role, kind.name) in _kinds:
        raise BugError(INTERNAL, f"{kind.role} type {kind.name!r} is registered twice")
    _kinds[kind.role, kind.name] = kind


def kinds() -> Kinds:
    """The options model of every kind, as the pipeline loader wants them."""
    _load_built_in()
    return {key: kind.options for key, kind in _kinds.items()}


def kind_of(node: NodeSpec) -> Kind:
    _load_built_in()
    return _kinds[node.role, node.type]


def build(node: NodeSpec, settings: Settings) -> Source | Sink:
    """The connector of a source or sink node."""
    make = kind_of(node).build
    if make is None:
        raise BugError(INTERNAL, f"{node.described()} has no connector", node=node.name)
    return make(node, settings)


def _load_built_in() -> None:
    """Importing a connector registers it. None of them imports Arrow or Spark before it runs."""
    import streamling.sinks.blackhole
    import streamling.sinks.clickhouse
    import streamling.sinks.file
    import streamling.sinks.kafka
    import streamling.sinks.memory
    import streamling.sinks.postgres
    import streamling.sinks.postgres_aggregate
    import streamling.sinks.print
    import streamling.sinks.webhook
    import streamling.sources.clickhouse
    import streamling.sources.file
    import streamling.sources.generator
    import streamling.sources.hybrid
    import streamling.sources.kafka
    import streamling.transforms.dynamic_table
    import streamling.transforms.handler
    import streamling.transforms.script
    import streamling.transforms.sql  # noqa: F401
