"""The pipeline file: from text to nodes with typed options.

    load_pipeline   text -> PipelineSpec with every problem of the nodes in it
    read_pipeline   the same for a path

Rules about one node are checked here; rules about several nodes (inputs, schemas, keys) are checked by the planner.
A node with problems stays in the pipeline, so that the planner can find further problems around it. The caller passes
the kinds of nodes: this package knows none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from streamling.errors import (
    INVALID_VALUE,
    KIND_NOT_AVAILABLE,
    MISSING_FIELD,
    MISSING_SECTION,
    NAME_CLASH,
    UNKNOWN_FIELD,
    UNKNOWN_SECTION,
    WRONG_TYPE,
    Caution,
    InvalidPipeline,
    UserError,
    Where,
)
from streamling.spec.faults import MERGE_KEY, NOT_MERGED, Fault, did_you_mean, faults, nearest
from streamling.spec.pipeline.nodes import (
    NodeSpec,
    OptionsModel,
    PipelineSpec,
    Role,
    describe_node,
    find_node,
    in_file_order,
)
from streamling.spec.pipeline.options import NodeOptions, RequiredKey
from streamling.spec.pipeline.text import pipeline_text
from streamling.spec.pipeline.unfinished import Unfinished, load_unfinished
from streamling.spec.settings.masking import remember_secrets
from streamling.spec.yaml import ListNode, MapEntry, MapNode, Node, ScalarNode, describe, load
from streamling.spec.yaml.mistakes import TEMPLATED

_SECTIONS = tuple(role.section for role in Role)
_REQUIRED = (Role.SOURCE.section, Role.SINK.section)

_KEY = "primary_key"
_RESERVED = "__"
_KEY_SEPARATOR = re.compile(r"[:\[]")
_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][^{}\s]*\}|\{\{[^{}]*\}\}|\{%.*?%\}")

Kinds = Mapping[tuple[Role, str], OptionsModel]
"""The options model of each kind of node, built-in or of a plugin, in the order in which messages list them."""
Absent = Mapping[tuple[Role, str], str]
"""Why some kinds are not available, for the message about a node that uses one."""


def read_pipeline(path: Path | str, kinds: Kinds) -> PipelineSpec:
    """As `load_pipeline`, for a file. Raises UserError PIPELINE_FILE if it is missing or cannot be read."""
    return load_pipeline(pipeline_text(path), str(path), kinds)


def load_pipeline(
    text: str,
    file: str,
    kinds: Kinds,
    absent: Absent | None = None,
    settings: object = None,
    *,
    unfinished: bool = False,
) -> PipelineSpec:
    """The pipeline written in `text`. Raises InvalidPipeline if it is not a YAML map.

    Options models get `settings` from pydantic as the context of the validation. `unfinished`: the sinks are not
    looked at, they may be missing or wrong, the transforms that other nodes read need no primary keys, and a node that
    breaks the YAML is one with a problem.
    """
    try:
        read = load_unfinished(text, file) if unfinished else Unfinished(load(text, file))
    except UserError as error:
        raise InvalidPipeline([error]) from error
    tree = _unwrap(read.tree)
    loader = _Loader(kinds, absent or {}, settings, unfinished=unfinished, broken=read.broken)
    loader.problems.extend(read.problems)
    ignored = (Role.SINK,) if unfinished else ()
    sections = {role: () if role in ignored else tuple(loader.section(tree, role)) for role in Role}
    loader.check_keys(tree)
    loader.check_state_keys()
    return PipelineSpec(
        file,
        sections[Role.SOURCE],
        sections[Role.TRANSFORM],
        sections[Role.SINK],
        tuple(in_file_order(loader.problems)),
        tuple(in_file_order(loader.cautions)),
    )


class _Loader:
    """Collects the nodes and the problems of one file."""

    def __init__(
        self,
        kinds: Kinds,
        absent: Absent,
        settings: object,
        *,
        unfinished: bool,
        broken: Mapping[tuple[str, str], UserError],
    ) -> None:
        self._kinds = kinds
        self._absent = absent
        self._settings = settings
        self._unfinished = unfinished
        self._broken = broken
        self._names: dict[tuple[str, str], tuple[MapEntry, str]] = {}
        """The entries of nodes and how messages name them, by namespace and reference name."""
        self.problems: list[UserError] = []
        self.cautions: list[Caution] = []

    def check_keys(self, tree: MapNode) -> None:
        """Warns of ignored keys that look like misspelt sections. Other keys are ignored on purpose."""
        for entry in tree.entries:
            if entry.key in _SECTIONS:
                continue
            section = nearest(entry.key, _SECTIONS)
            if entry.key == MERGE_KEY and isinstance(entry.value, MapNode):
                if any(entry.value.get(section) is not None for section in _SECTIONS):
                    self.cautions.append(Caution(UNKNOWN_SECTION, NOT_MERGED, where=entry.where))
            elif section is not None and not (section in _REQUIRED and tree.get(section) is None):
                message = f"unknown top-level key '{entry.key}' is ignored"
                hint = f"did you mean '{section}'?"
                self.cautions.append(Caution(UNKNOWN_SECTION, message, where=entry.where, hint=hint))

    def section(self, tree: MapNode, role: Role) -> Iterator[NodeSpec]:
        entry = tree.entry(role.section)
        if entry is None:
            if role.section in _REQUIRED:
                message = f"missing section '{role.section}': a pipeline needs the maps 'sources' and 'sinks'"
                near = nearest(role.section, (other.key for other in tree.entries))
                hint = f"did you mean '{role.section}' instead of '{near}'?" if near else None
                self.problems.append(UserError(MISSING_SECTION, message, where=tree.where, hint=hint))
        elif isinstance(entry.value, MapNode):
            for node in entry.value.entries:
                spec = self._node(node, role)
                if spec is not None:
                    yield spec
        elif not _is_empty(entry.value) or role.section in _REQUIRED:
            message = f"section '{role.section}' must be a map of nodes by name, not {describe(entry.value)}"
            hint = f"write {role.section}: {{}} for an empty section" if _is_empty(entry.value) else None
            self.problems.append(UserError(WRONG_TYPE, message, where=entry.value.where, hint=hint))

    def _check_name(self, entry: MapEntry, role: Role, type_: str, namespace: str) -> None:
        prefix = describe_node(role, entry.key, type_)
        first, first_prefix = self._names.setdefault((namespace, entry.key.lower()), (entry, prefix))
        if first.where.line != entry.where.line or first_prefix != prefix:
            message = (
                f"{first_prefix} in line {first.where.line} already has this name; upper and lower case count as the "
                "same"
            )
            self._report(prefix, entry.key, UserError(NAME_CLASH, message, where=entry.where))
        if entry.key.startswith(_RESERVED):
            message = f"names that begin with '{_RESERVED}' are reserved for streamling's own keys in the state"
            hint = f"rename it, for example to '{entry.key.strip('_') or role.value}'"
            self._report(prefix, entry.key, UserError(INVALID_VALUE, message, where=entry.where, hint=hint))

    def check_state_keys(self) -> None:
        """A state key is the name of a node, alone or followed by ':' or '[' and more. So no two nodes can have the
        same key, unless the name of one begins with the name of the other and such a separator."""
        for (namespace, ref), (entry, prefix) in self._names.items():
            stems = [ref[: separator.start()] for separator in _KEY_SEPARATOR.finditer(ref)]
            other = next((self._names[namespace, stem] for stem in stems if (namespace, stem) in self._names), None)
            if other is not None:
                message = f"its name begins like a state key of the {other[1]} in line {other[0].where.line}"
                hint = "rename one of them: otherwise one could overwrite the stored positions of the other"
                self._report(prefix, entry.key, UserError(NAME_CLASH, message, where=entry.where, hint=hint))

    def _node(self, entry: MapEntry, role: Role) -> NodeSpec | None:
        name, tree = entry.key, entry.value
        prefix = describe_node(role, name)
        if not name.strip():
            self._report(prefix, name, UserError(INVALID_VALUE, "the name must not be empty", where=entry.where))
            return None
        if name == MERGE_KEY:
            self._report(prefix, name, UserError(UNKNOWN_FIELD, NOT_MERGED, where=entry.where))
            return None
        if not isinstance(tree, MapNode):
            message = f"must be a map of fields, not {describe(tree)}"
            problem = UserError(WRONG_TYPE, message, where=tree.where)
            self._report(prefix, name, self._broken.get((role.section, name), problem))
            tree = MapNode(tree.where, ())
            model = None
        else:
            model = self._model(entry, tree, role, prefix)
        type_ = _written_type(tree)
        self._check_name(entry, role, type_, model.namespace if model else NodeOptions.namespace)
        options = self._options(entry, role, type_, model, tree) if model else None
        spec = NodeSpec(
            role,
            name,
            name.lower(),
            type_,
            options or NodeOptions.model_construct(type=type_),
            entry.where,
            tree,
            model,
            sound=options is not None,
        )
        self._check_placeholders(spec)
        return spec

    def _check_placeholders(self, node: NodeSpec) -> None:
        """Warns of texts that look like placeholders. Opaque fields are not checked: they may be code with such
        marks, or templates for another program."""
        if node.model is None:
            return
        fields = {f.alias or name for name, f in node.model.model_fields.items()} - set(node.model.opaque)
        for path, text in _texts(e for e in node.tree.entries if e.key in fields):
            placeholder = _PLACEHOLDER.search(text)
            if placeholder is not None and not self._is_reported(node.locate(*path)):
                field_ = ".".join(str(part) for part in path)
                message = f"'{field_}' contains '{placeholder[0]}', which is used as written"
                self.cautions.append(node.caution(INVALID_VALUE, message, *path, hint=TEMPLATED))

    def _options(
        self, entry: MapEntry, role: Role, type_: str, model: type[NodeOptions], tree: MapNode
    ) -> NodeOptions | None:
        fields = tree.plain()
        keyless = self._unfinished and _may_lack_key(model, fields)
        if keyless:
            fields[_KEY] = _KEY
        try:
            # Strict mode accepts text for enums and lists for tuples only if the input is JSON.
            options = model.model_validate_json(json.dumps(fields), context=self._settings)
            remember_secrets(options)
            return options.model_copy(update={_KEY: None}) if keyless else options
        except ValidationError as error:
            for fault in faults(error, model):
                where = _fault_place(tree, fault, entry.where)
                written = find_node(tree, fault.path)
                templated = isinstance(written, ScalarNode) and _PLACEHOLDER.search(written.text) is not None
                hint = TEMPLATED if templated else fault.hint
                problem = UserError(fault.condition, fault.sentence, where=where, hint=hint)
                self._report(describe_node(role, entry.key, type_), entry.key, problem)
            return None

    def _model(self, entry: MapEntry, tree: MapNode, role: Role, prefix: str) -> type[NodeOptions] | None:
        known = [name for kind_role, name in self._kinds if kind_role is role]
        field_ = tree.get("type")
        if field_ is None and (merge := tree.entry(MERGE_KEY)) is not None:
            self._report(prefix, entry.key, UserError(UNKNOWN_FIELD, NOT_MERGED, where=merge.where))
            return None
        if field_ is None or _is_empty(field_):
            message = f"missing field 'type'; known {role.value} types: {', '.join(known)}"
            self._report(prefix, entry.key, UserError(MISSING_FIELD, message, where=entry.where))
            return None
        if not isinstance(field_, ScalarNode) or not isinstance(field_.value, str):
            message = f"'type' must be text, not {describe(field_)}"
            self._report(prefix, entry.key, UserError(WRONG_TYPE, message, where=field_.where))
            return None
        type_ = field_.value
        model = self._kinds.get((role, type_))
        if model is None:
            problem = self._unknown_type(role, type_, known, field_.where)
            self._report(describe_node(role, entry.key, type_), entry.key, problem)
        return model

    def _unknown_type(self, role: Role, type_: str, known: list[str], where: Where) -> UserError:
        hint = did_you_mean(type_, known)
        if others := [other for other in Role if (other, type_) in self._kinds]:
            message = f"'{type_}' is not available as a {role.value}: it is a {others[0].value}"
            hint = f"move the node to '{others[0].section}'"
        elif hint is not None:
            message = f"{role.value} type '{type_}' is not available"
        else:
            message = f"plugin '{type_}' is not available"
        message = f"{message}; known {role.value} types: {', '.join(known)}"
        if (role, type_) in self._absent:
            message = f"{message}; {self._absent[role, type_]}"
        elif hint is None:
            hint = "load the plugin with STREAMLING__PLUGIN__PATH, or correct the type"
        return UserError(KIND_NOT_AVAILABLE, message, where=where, hint=hint)

    def _is_reported(self, where: Where) -> bool:
        return any(problem.where == where for problem in self.problems)

    def _report(self, prefix: str, node: str, problem: UserError) -> None:
        self.problems.append(
            UserError(
                problem.condition, f"{prefix}: {problem.message}", node=node, where=problem.where, hint=problem.hint
            )
        )


def _unwrap(tree: MapNode) -> MapNode:
    inner = tree.get("definition")
    if isinstance(inner, MapNode) and not any(tree.entry(role.section) for role in Role):
        return inner
    return tree


def _may_lack_key(model: OptionsModel, fields: Mapping[str, object]) -> bool:
    return issubclass(model, RequiredKey) and not model.joined and fields.get(_KEY) is None


def _written_type(tree: MapNode) -> str:
    node = tree.get("type")
    return node.value if isinstance(node, ScalarNode) and isinstance(node.value, str) else ""


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _texts(
    entries: Iterable[MapEntry], path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for entry in entries:
        yield from _texts_in(entry.value, (*path, entry.key))


def _texts_in(node: Node, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match node:
        case MapNode(entries=entries):
            yield from _texts(entries, path)
        case ListNode(items=items):
            for number, item in enumerate(items):
                yield from _texts_in(item, (*path, number))
        case ScalarNode(value=str(text)):
            yield path, text


def _fault_place(tree: MapNode, fault: Fault, node: Where) -> Where:
    value = find_node(tree, fault.path)
    if fault.condition is UNKNOWN_FIELD:
        around = find_node(tree, fault.path[:-1])
        if isinstance(around, MapNode) and (entry := around.entry(str(fault.path[-1]))) is not None:
            return entry.where
    return node if value is tree else value.where
