"""`streamling plan FILE`: the graph, and per node its columns, key, delivery and the place it runs at."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamling.cli.failure import rendered, rendered_caution
from streamling.cli.options import add_common, add_file, add_probe, pipeline_file, settings_of
from streamling.errors import Caution
from streamling.spec.pipeline import Role

if TYPE_CHECKING:
    from streamling.engine.facts import NodeFacts
    from streamling.plan.nodes import PlannedNode
    from streamling.plan.pipeline import Plan
    from streamling.plan.types import Field

_OPENING = {Role.SOURCE: "([", Role.TRANSFORM: "[", Role.SINK: "[("}
_CLOSING = {Role.SOURCE: "])", Role.TRANSFORM: "]", Role.SINK: ")]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_probe(parser)
    parser.add_argument(
        "--format",
        choices=("text", "mermaid", "json"),
        default="text",
        help="text (default), a Mermaid flowchart, or json",
    )
    add_common(parser)


def execute(options: argparse.Namespace) -> int:
    from streamling.engine.facts import facts_of
    from streamling.engine.preparation import check

    try:
        loaded = settings_of(options, level="warn")
        plan = check(pipeline_file(options, loaded), loaded.settings, probe=options.probe)
        facts = {node.view: facts_of(node, loaded.settings) for node in plan.nodes}
    except Exception as error:  # anything at all must become a message and exit code 1
        print(rendered(error, with_trace=options.traceback), file=sys.stderr)
        return 1
    cautions: list[Caution | str] = [*loaded.warnings, *plan.cautions]
    for caution in cautions:
        print(rendered_caution(caution), file=sys.stderr)
    match options.format:
        case "mermaid":
            print("\n".join(mermaid(plan)))
        case "json":
            print(
                json.dumps(
                    [_as_json(plan, node, facts[node.view]) for node in plan.nodes], indent=2, ensure_ascii=False
                )
            )
        case _:
            print("\n".join(text(plan, facts)))
    return 0


def text(plan: Plan, facts: dict[str, NodeFacts]) -> Iterator[str]:
    """The graph as trees below the sources, then a paragraph per node."""
    shown: set[str] = set()
    for node in plan.nodes:
        if not node.inputs:
            yield from _tree(plan, node, shown, "", "")
    for node in plan.nodes:
        yield ""
        yield f"{node.spec.name}: {node.spec.type} {node.spec.role.value}"
        for name, value in _lines(plan, node, facts[node.view]):
            yield f"  {name + ':':<10} {value}"
        if node.columns is not None and node.columns.fields:
            width = max((len(f.name) for f in node.columns), default=0)
            yield f"  {'columns:':<10} " + "\n             ".join(_column(f, width) for f in node.columns)


def mermaid(plan: Plan) -> Iterator[str]:
    """A flowchart that renders wherever Mermaid does."""
    yield "flowchart LR"
    for node in plan.nodes:
        role = node.spec.role
        label = f"{_escaped(node.spec.name)}<br/><small>{_escaped(node.spec.type)}</small>"
        yield f'  {node.view}{_OPENING[role]}"{label}"{_CLOSING[role]}'
    for node in plan.nodes:
        for ref in node.inputs:
            yield f"  {plan.node(ref).view} --> {node.view}"
        for ref in node.asks:
            yield f"  {plan.dynamic_table(ref).view} -.-> {node.view}"


def _tree(plan: Plan, node: PlannedNode, shown: set[str], lead: str, below: str) -> Iterator[str]:
    readers = _readers(plan, node)
    repeated = node.view in shown and bool(readers)
    yield f"{lead}{node.spec.name}" + (" (see above)" if repeated else "")
    shown.add(node.view)
    if repeated:
        return
    for position, reader in enumerate(readers):
        last = position == len(readers) - 1
        yield from _tree(plan, reader, shown, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def _readers(plan: Plan, node: PlannedNode) -> tuple[PlannedNode, ...]:
    return () if node in (*plan.sinks, *plan.dynamic_tables) else plan.consumers(node.ref)


def _lines(plan: Plan, node: PlannedNode, facts: NodeFacts) -> Iterator[tuple[str, str]]:
    if node.inputs:
        yield "reads", ", ".join(plan.node(ref).spec.name for ref in node.inputs)
    if node.asks:
        yield "asks", ", ".join(plan.dynamic_table(ref).spec.name for ref in node.asks)
    readers = _readers(plan, node)
    if readers:
        yield "feeds", ", ".join(n.spec.name for n in readers)
    table = node in plan.dynamic_tables
    if not table:
        yield "key", ", ".join(node.primary_key) or "none"
    if facts.delivery is not None:
        yield "delivery", facts.delivery
    yield "runs", facts.runs
    if node.columns is None and not table:
        yield "columns", "not known without --probe"


def _column(field: Field, width: int) -> str:
    return f"{field.name:<{width}}  {field.type}" + ("" if field.nullable else " not null")


def _as_json(plan: Plan, node: PlannedNode, facts: NodeFacts) -> dict[str, object]:
    columns = node.columns
    return {
        "name": node.spec.name,
        "role": node.spec.role.value,
        "type": node.spec.type,
        "reads": [plan.node(ref).spec.name for ref in node.inputs],
        "asks": [plan.dynamic_table(ref).spec.name for ref in node.asks],
        "primary_key": list(node.primary_key),
        "delivery": facts.delivery,
        "runs": facts.runs,
        "columns": None
        if columns is None
        else [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in columns],
    }


def _escaped(label: str) -> str:
    return "".join(c if c.isalnum() or c in " ._-" else f"#{ord(c)};" for c in label)
