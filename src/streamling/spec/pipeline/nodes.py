"""A pipeline as its author wrote it: nodes by section, with their positions in the file."""

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
    """The role of a node; its section in the file has the plural of the word."""

    SOURCE = "source"
    TRANSFORM = "transform"
    SINK = "sink"

    @property
    def section(self) -> str:
        return f"{self.value}s"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node as its author wrote it. `ref` is the name in state keys, metrics and references: lower-case.

    model   the options model of its kind; None if there is no such kind
    sound   whether `options` are valid and as written; if not, they are the defaults that all nodes share, and only
            `text` gives what is in the file
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
        """The value of a text field as written; None if it is missing or not text."""
        node = self.tree.get(name)
        return node.value if isinstance(node, ScalarNode) and isinstance(node.value, str) else None

    def locate(self, *path: str | int) -> Where:
        """The position of a field's value; if it was not written, that of the nearest map around it, or of the node."""
        value = find_node(self.tree, path)
        return self.where if value is self.tree else value.where

    def text_locator(self, *path: str | int) -> Callable[[int, int], Where | None]:
        """A function from line and column inside the text of a field to the position in the file."""
        value = find_node(self.tree, path)
        return value.locate if isinstance(value, ScalarNode) else lambda line, column: None

    def described(self) -> str:
        """How messages name the node: `kafka source 'orders'`."""
        return describe_node(self.role, self.name, self.type)

    def error(self, condition: Condition, message: str, *path: str | int, hint: str | None = None) -> UserError:
        """A problem of the field at `path`, or of the node; the message continues `kafka source 'orders': `."""
        text = f"{self.described()}: {message}"
        return UserError(condition, text, node=self.name, where=self._position(path), hint=hint)

    def caution(self, condition: Condition, message: str, *path: str | int, hint: str | None = None) -> Caution:
        """As `error`, for a warning."""
        text = f"{self.described()}: {message}"
        return Caution(condition, text, node=self.name, where=self._position(path), hint=hint)

    def _position(self, path: tuple[str | int, ...]) -> Where:
        return self.locate(*path) if path else self.where


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline file. Nodes and the problems found in them are in the order of the file."""

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
    """The problems sorted by position; those without one come first."""
    return sorted(problems, key=lambda p: (p.where.line, p.where.column) if p.where else (0, 0))


def describe_node(role: Role, name: str, type_: str | None = None) -> str:
    return f"{type_} {role.value} '{name}'" if type_ else f"{role.value} '{name}'"


def find_node(tree: Node, path: tuple[str | int, ...]) -> Node:
    """The node at `path`, or the last existing one on the way to it."""
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
