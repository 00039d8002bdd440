"""A pipeline as its author wrote it: nodes by section, with their places in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from streamling.errors import Caution, Condition, StreamlingError, UserError, Where
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.yaml import ListNode, MapNode, Node, ScalarNode

_Problem = TypeVar("_Problem", bound=StreamlingError | Caution)

OptionsModel = type[NodeOptions]


class Role(StrEnum):
    """What a node does with rows; the section it stands in is the plural."""

    SOURCE = "source"
    TRANSFORM = "transform"
    SINK = "sink"

    @property
    def section(self) -> str:
        return f"{self.value}s"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node as its author wrote it. `ref` is the name in state keys, metrics and references: lower-case.

    model   the options model of its kind; None when there is no such kind
    sound   whether the options are what was written; if not, they are the defaults of every node, and
            only `text` tells what stands in the file
    """

    role: Role
    name: str
    ref: str
    type: str
    options: NodeOptions = field(hash=False)
    where: Where
    tree: MapNode = field(hash=False, repr=False)
    model: OptionsModel | None = field(default=None, hash=False, repr=False)
    sound: bool = True

    def text(self, name: str) -> str | None:
        """What was written in a text field; None if it is missing or no text."""
        found = self.tree.get(name)
        return found.value if isinstance(found, ScalarNode) and isinstance(found.value, str) else None

    def locate(self, *path: str | int) -> Where:
        """Where the value of a field stands; the nearest map around it, or the node, if it was not written."""
        found = find_node(self.tree, path)
        return self.where if found is self.tree else found.where

    def text_locator(self, *path: str | int) -> Callable[[int, int], Where | None]:
        """Translates line and column inside the text of a field into a place in the file."""
        found = find_node(self.tree, path)
        return found.locate if isinstance(found, ScalarNode) else lambda line, column: None

    def described(self) -> str:
        """How messages speak of the node: `kafka source 'orders'`."""
        return described_node(self.role, self.name, self.type)

    def error(self, condition: Condition, message: str, *path: str | int, hint: str | None = None) -> UserError:
        """A problem of the field at `path`, or of the node; the message continues `kafka source 'orders': `."""
        text = f"{self.described()}: {message}"
        return UserError(condition, text, node=self.name, where=self._place(path), hint=hint)

    def caution(self, condition: Condition, message: str, *path: str | int, hint: str | None = None) -> Caution:
        """As `error`, for what stops nothing."""
        text = f"{self.described()}: {message}"
        return Caution(condition, text, node=self.name, where=self._place(path), hint=hint)

    def _place(self, path: tuple[str | int, ...]) -> Where:
        return self.locate(*path) if path else self.where


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline file. Nodes stand in the order of the file, and so do the problems found in them."""

    file: str
    sources: tuple[NodeSpec, ...] = ()
    transforms: tuple[NodeSpec, ...] = ()
    sinks: tuple[NodeSpec, ...] = ()
    problems: tuple[UserError, ...] = ()
    cautions: tuple[Caution, ...] = ()

    @property
    def nodes(self) -> tuple[NodeSpec, ...]:
        return (*self.sources, *self.transforms, *self.sinks)


def in_file_order(problems: Iterable[_Problem]) -> list[_Problem]:
    """Sorted by place; what has none comes first."""
    return sorted(problems, key=lambda p: (p.where.line, p.where.column) if p.where else (0, 0))


def described_node(role: Role, name: str, type_: str | None = None) -> str:
    return f"{type_} {role.value} '{name}'" if type_ else f"{role.value} '{name}'"


def find_node(tree: Node, path: tuple[str | int, ...]) -> Node:
    """The node at `path`, or the last one on the way to it."""
    for part in path:
        inner: Node | None = None
        if isinstance(tree, MapNode) and isinstance(part, str):
            inner = tree.get(part)
        elif isinstance(tree, ListNode) and isinstance(part, int) and 0 <= part < len(tree.items):
            inner = tree.items[part]
        if inner is None:
            return tree
        tree = inner
    return tree
