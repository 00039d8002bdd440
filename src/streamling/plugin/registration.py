"""The registered plugins: modules register them when they are imported.

    @register_sink("queue")
    class QueueSink(SinkPlugin): ...

An id is `name` or `namespace.name` and belongs to one plugin, whatever its kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from streamling.connector import kinds
from streamling.errors import PLUGIN_NOT_LOADED, UserError
from streamling.plugin import functions
from streamling.spec.pipeline import Role

if TYPE_CHECKING:
    import pyarrow as pa


class PluginKind(Enum):
    SOURCE = "source"
    TRANSFORM = "transform"
    SINK = "sink"
    PREPROCESSOR = "preprocessor"
    SIDE_OUTPUT = "side output"
    UDF = "function"

    @property
    def role(self) -> Role | None:
        """The role of its nodes; None for plugins that are not nodes."""
        return Role(self.value) if self in (PluginKind.SOURCE, PluginKind.TRANSFORM, PluginKind.SINK) else None


# Methods that a class must have; all others have a default.
_REQUIRED = {
    PluginKind.SOURCE: ("output_schema", "generate_batch"),
    PluginKind.TRANSFORM: ("output_schema", "process_batch"),
    PluginKind.SINK: ("process_batch",),
    PluginKind.PREPROCESSOR: ("preprocess_topology",),
    PluginKind.SIDE_OUTPUT: ("process_batch",),
}


class Provenance(Enum):
    """Where a plugin comes from."""

    SAMPLE = "built-in sample"
    ENTRY_POINT = "entry point"
    PATH = "path"
    CODE = "code"
    """Registered by the program that uses this package."""


@dataclass(frozen=True, slots=True)
class PluginOrigin:
    """`place`: the file or directory, the entry point or the module."""

    provenance: Provenance
    place: str


@dataclass(frozen=True, slots=True)
class Registration:
    """One plugin. Buffers are in batches, 0 = `plugin.channel_capacity`."""

    id: str
    kind: PluginKind
    target: Any
    """The class, or the function."""
    origin: PluginOrigin
    partitioned: bool = False
    input_buffer: int = 0
    output_buffer: int = 0

    @property
    def doc(self) -> str:
        """The first line of its documentation."""
        lines = (inspect.getdoc(self.target) or "").strip().splitlines()
        return lines[0] if lines and self.target.__doc__ else ""

    @property
    def stateless(self) -> bool:
        """Whether it may run in many processes. A partitioned plugin decides which instance gets which rows."""
        return bool(getattr(self.target, "stateless", False)) and not self.partitioned

    @property
    def deterministic(self) -> bool:
        return bool(getattr(self.target, "deterministic", True))

    def described(self) -> str:
        return f"{self.kind.value} plugin '{self.id}'"


_plugins: dict[str, Registration] = {}
_functions: dict[str, Registration] = {}
_loading: ContextVar[PluginOrigin | None] = ContextVar("loading", default=None)


def registrations() -> list[Registration]:
    """Everything registered, sorted by id."""
    return sorted((*_plugins.values(), *_functions.values()), key=lambda r: (r.kind is PluginKind.UDF, r.id))


def find(id_: str, kind: PluginKind) -> Registration | None:
    registration = _plugins.get(id_)
    return registration if registration is not None and registration.kind is kind else None


@contextmanager
def loading(origin: PluginOrigin) -> Iterator[None]:
    """Plugins that are registered inside come from this origin."""
    token = _loading.set(origin)
    try:
        yield
    finally:
        _loading.reset(token)


def forget(provenance: Provenance) -> None:
    """Remove the plugins of this provenance, so that they can be loaded again."""
    for registration in [r for r in registrations() if r.origin.provenance is provenance]:
        if registration.kind is PluginKind.UDF:
            del _functions[registration.id]
            functions.remove_function(registration.id)
        else:
            _remove(registration)


def add(registration: Registration) -> None:
    """Add a plugin; a sample gives way to any other plugin of its id.

    Raises UserError if it is not a valid plugin, or if two plugins have the same id.
    """
    from streamling.plugin.nodes.kinds import node_kind

    _check(registration)
    known = _plugins.get(registration.id)
    if known is not None:
        if registration.origin.provenance is Provenance.SAMPLE:
            return
        if known.origin.provenance is not Provenance.SAMPLE:
            raise UserError(
                PLUGIN_NOT_LOADED,
                f"two plugins have the id '{registration.id}': one from {known.origin.place}, "
                f"one from {registration.origin.place}",
                hint="give one of them another name, or a namespace",
            )
        _remove(known)
    _plugins[registration.id] = registration
    if registration.kind.role is not None:
        kinds.add_plugin_kind(node_kind(registration))


def _remove(registration: Registration) -> None:
    del _plugins[registration.id]
    if registration.kind.role is not None:
        kinds.remove_plugin_kind(registration.kind.role, registration.id)


def _check(registration: Registration) -> None:
    role, target = registration.kind.role, registration.target
    problem = None
    if not registration.id or any(not part.strip() for part in registration.id.split(".", 1)):
        problem = "the id must be 'name' or 'namespace.name'"
    elif role is not None and kinds.is_built_in(registration.id):
        problem = "the id belongs to a built-in kind of node"
    elif not isinstance(target, type):
        problem = f"a class is expected, not {target!r}"
    elif missing := [name for name in _REQUIRED[registration.kind] if not callable(getattr(target, name, None))]:
        problem = f"the class {target.__name__} has no method {' and no method '.join(missing)}"
    elif registration.partitioned and not callable(getattr(target, "describe", None)):
        problem = (
            f"a partitioned plugin needs a class method describe(options, input_schema); {target.__name__} has none"
        )
    elif registration.stateless and _overrides(target, "process_checkpoint_marker"):
        problem = f"{target.__name__} is stateless, so it gets no markers, but has process_checkpoint_marker"
    elif min(registration.input_buffer, registration.output_buffer) < 0:
        problem = "buffers hold 0 batches or more; 0 is the default size"
    if problem is not None:
        raise UserError(PLUGIN_NOT_LOADED, f"{registration.described()}: {problem}")


def _overrides(target: type, method: str) -> bool:
    """Whether a class, or one of its bases other than ours, has the method."""
    return any(method in vars(base) for base in target.__mro__ if base.__module__ != "streamling.plugin.bases")


def _origin(target: object) -> PluginOrigin:
    current = _loading.get()
    return current or PluginOrigin(Provenance.CODE, str(getattr(target, "__module__", "") or "code"))


def _register(kind: PluginKind, words: Sequence[object], **keywords: Any) -> Any:
    """`("id", Class)`, `("namespace", "name", Class)`, or without the class, for a decorator."""
    *names, last = words or (None,)
    if isinstance(last, str):
        return lambda target: _register(kind, (*words, target), **keywords)
    if not 1 <= len(names) <= 2 or not all(isinstance(name, str) for name in names):
        message = f"a {kind.value} is registered as ('id', Class) or ('namespace', 'name', Class)"
        raise UserError(PLUGIN_NOT_LOADED, message)
    add(Registration(".".join(str(name) for name in names), kind, last, _origin(last), **keywords))
    return last


def register_source(*words: Any, partitioned: bool = False, input_buffer: int = 0, output_buffer: int = 0) -> Any:
    """Register a source: a class with `output_schema` and `generate_batch`."""
    buffers = {"input_buffer": input_buffer, "output_buffer": output_buffer}
    return _register(PluginKind.SOURCE, words, partitioned=partitioned, **buffers)


def register_transform(*words: Any, partitioned: bool = False, input_buffer: int = 0, output_buffer: int = 0) -> Any:
    """Register a transform: a class with `output_schema` and `process_batch`."""
    buffers = {"input_buffer": input_buffer, "output_buffer": output_buffer}
    return _register(PluginKind.TRANSFORM, words, partitioned=partitioned, **buffers)


def register_sink(*words: Any, partitioned: bool = False, input_buffer: int = 0, output_buffer: int = 0) -> Any:
    """Register a sink: a class with `process_batch`."""
    buffers = {"input_buffer": input_buffer, "output_buffer": output_buffer}
    return _register(PluginKind.SINK, words, partitioned=partitioned, **buffers)


def register_preprocessor(*words: Any) -> Any:
    """Register a preprocessor: a class with `preprocess_topology`."""
    return _register(PluginKind.PREPROCESSOR, words)


def register_side_output(*words: Any) -> Any:
    """Register a side output: a class with `process_batch`."""
    return _register(PluginKind.SIDE_OUTPUT, words)


def register_udf(
    name: str,
    argument_types: Sequence[pa.DataType],
    return_type: pa.DataType,
    function: Callable[..., Any],
    volatile: bool = False,
) -> None:
    """Register a scalar SQL function: Arrow arrays in, an array of the same length out; literals are scalars.

    A function with the name of a built-in one replaces it. A volatile one is computed for every row.
    """
    registration = Registration(name.lower(), PluginKind.UDF, function, _origin(function))
    known = _functions.get(registration.id)
    if known is not None:
        message = (
            f"two functions have the name '{name}': one from {known.origin.place}, one from {registration.origin.place}"
        )
        raise UserError(PLUGIN_NOT_LOADED, message)
    functions.add_function(
        functions.Udf(registration.id, tuple(argument_types), return_type, function, volatile, registration.origin)
    )
    _functions[registration.id] = registration
