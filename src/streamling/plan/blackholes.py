"""A pipeline as text with its sinks replaced by blackholes, for a preview that another process runs."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from streamling.errors import MISSING_FIELD, WRONG_TYPE, InvalidPipeline, UserError
from streamling.plan.graph import is_stream, make_graph
from streamling.spec.pipeline import Kinds, PipelineSpec, Role, describe_node, load_pipeline
from streamling.spec.yaml import MapEntry, MapNode, ScalarNode, describe, load

PREFIX = "preview_blackhole_"
"""The names of blackholes for nodes that no node reads, in a pipeline without sinks."""

_SINKS = Role.SINK.section
_DEFINITION = "definition"


def replace_sinks(text: str, file: str, kinds: Kinds) -> str:
    """The pipeline with a blackhole instead of every sink, under its name. Without sinks, every node that no node reads
    gets one. Comments are lost. Raises UserError or InvalidPipeline."""
    document = load(text, file)
    pipeline = load_pipeline(text, file, kinds, unfinished=True)
    inner = document.get(_DEFINITION)
    wrapped = isinstance(inner, MapNode) and not any(document.entry(role.section) for role in Role)
    tree = inner if wrapped and isinstance(inner, MapNode) else document
    _check_sections(pipeline)
    content = {**tree.plain(), _SINKS: _blackholes(tree, pipeline)}
    return _to_yaml({**document.plain(), _DEFINITION: content} if wrapped else content)


def _check_sections(pipeline: PipelineSpec) -> None:
    """Raises InvalidPipeline if a section is missing or is not a map of nodes."""
    problems = [problem for problem in pipeline.problems if problem.node is None]
    if problems:
        raise InvalidPipeline(problems)


def _blackholes(tree: MapNode, pipeline: PipelineSpec) -> dict[str, object]:
    sinks = tree.get(_SINKS)
    if sinks is None or (isinstance(sinks, ScalarNode) and sinks.value is None):
        return _blackholes_of_unread(pipeline)
    if not isinstance(sinks, MapNode):
        message = f"section '{_SINKS}' must be a map of nodes by name, not {describe(sinks)}"
        raise UserError(WRONG_TYPE, message, where=sinks.where)
    if not sinks.entries:
        return _blackholes_of_unread(pipeline)
    return {entry.key: _blackhole(_input(entry)) for entry in sinks.entries}


def _blackhole(input_: object) -> dict[str, object]:
    return {"type": "blackhole", "from": input_}


def _input(sink: MapEntry) -> object:
    what = describe_node(Role.SINK, sink.key)
    if not isinstance(sink.value, MapNode):
        message = f"{what}: must be a map of fields, not {describe(sink.value)}"
        raise UserError(WRONG_TYPE, message, node=sink.key, where=sink.value.where)
    from_ = sink.value.get("from")
    if from_ is None:
        raise UserError(MISSING_FIELD, f"{what}: missing field 'from'", node=sink.key, where=sink.where)
    return from_.plain()


def _blackholes_of_unread(pipeline: PipelineSpec) -> dict[str, object]:
    graph = make_graph(pipeline)
    read = {ref for refs in graph.inputs.values() for ref in refs}
    taken = {node.ref for node in pipeline.nodes}
    sinks: dict[str, object] = {}
    for node in pipeline.nodes:
        if is_stream(node) and node.ref not in read:
            name = f"{PREFIX}{node.name}"
            while name.lower() in taken:
                name += "_"
            sinks[name] = _blackhole(node.name)
    return sinks


def _to_yaml(content: Mapping[str, object]) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.version = "1.2"
    yaml.default_flow_style = False
    yaml.width = 10_000
    output = StringIO()
    yaml.dump(_readable(content), output)
    return output.getvalue().removeprefix("%YAML 1.2\n---\n")


def _readable(value: object) -> Any:
    """Texts of several lines as blocks, as users write SQL."""
    from ruamel.yaml.scalarstring import LiteralScalarString

    if isinstance(value, dict):
        return {_quoted(key): _readable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_readable(inner) for inner in value]
    if not isinstance(value, str) or value.isprintable():
        return value
    lines = value.split("\n")
    fits = all(line.isprintable() and line == line.rstrip() for line in lines) and lines[0] == lines[0].lstrip() != ""
    return LiteralScalarString(value) if fits else _quoted(value)


def _quoted(text: str) -> str:
    """Text with characters that need an escape, in double quotes; the writer would fold it."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    return text if text.isprintable() else DoubleQuotedScalarString(text)
