"""`streamling plan FILE`: the graph, and for each node its columns, key, delivery guarantee and where it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.failure import attempt
from streamling.cli.options import (
    Common,
    Config,
    File,
    Probe,
    Quiet,
    Traceback,
    Verbose,
    pipeline_file,
    settings_of,
)

if TYPE_CHECKING:
    from streamling.engine.protocol.facts import NodeFacts
    from streamling.errors import Caution
    from streamling.plan.pipeline import Plan
    from streamling.plan.planned_node import PlannedNode
    from streamling.plan.types import Field

EXAMPLES = """
streamling plan orders.yaml                     graph, columns and keys
streamling plan orders.yaml --probe             also look up columns
streamling plan orders.yaml --format mermaid    a flowchart for a web page
"""
# The shape of a node in a flowchart, by its role.
_SHAPES = {"source": ("([", "])"), "transform": ("[", "]"), "sink": ("[(", ")]")}
app = new_app()


class PlanFormat(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


@app.command(cls=Command, epilog=EXAMPLES)
def plan(
    file: File = None,
    probe: Probe = False,
    format_: Annotated[
        PlanFormat, typer.Option("--format", help="Text, a Mermaid flowchart, or JSON.")
    ] = PlanFormat.TEXT,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Show the graph, columns, keys and guarantees of a pipeline."""
    common = Common(config, verbose, quiet, traceback)
    return attempt(lambda: _print_plan(file, common, format_, probe=probe), with_trace=traceback)


def _print_plan(file: str | None, common: Common, format_: PlanFormat, *, probe: bool) -> int:
    from streamling.cli.failure import show_caution
    from streamling.engine.preparation import check
    from streamling.engine.protocol.facts import describe, facts_of

    loaded = settings_of(common, level="warn")
    plan = check(pipeline_file(file, loaded), loaded.settings, probe=probe)
    facts = {node.view: facts_of(plan, node, loaded.settings) for node in plan.nodes}
    cautions: list[Caution | str] = [*loaded.warnings, *plan.cautions]
    for caution in cautions:
        show_caution(caution)
    match format_:
        case PlanFormat.MERMAID:
            print("\n".join(mermaid(plan)))
        case PlanFormat.JSON:
            nodes = [describe(plan, node, facts[node.view]) for node in plan.nodes]
            print(json.dumps(nodes, indent=2, ensure_ascii=False))
        case PlanFormat.TEXT:
            print("\n".join(text(plan, facts)))
    return 0


def text(plan: Plan, facts: dict[str, NodeFacts]) -> Iterator[str]:
    """The graph as trees that begin at the sources, then a paragraph per node."""
    printed: set[str] = set()
    for node in plan.nodes:
        if not node.inputs:
            yield from _tree(plan, node, printed, "", "")
    for node in plan.nodes:
        yield ""
        yield f"{node.spec.name}: {node.spec.type} {node.spec.role.value}"
        for name, value in _lines(plan, node, facts[node.view]):
            yield f"  {name + ':':<10} {value}"
        if node.columns is not None and node.columns.fields:
            width = max((len(f.name) for f in node.columns), default=0)
            yield f"  {'columns:':<10} " + "\n             ".join(_column(f, width) for f in node.columns)


def mermaid(plan: Plan) -> Iterator[str]:
    """A Mermaid flowchart."""
    yield "flowchart LR"
    for node in plan.nodes:
        opening, closing = _SHAPES[node.spec.role.value]
        label = f"{_escape(node.spec.name)}<br/><small>{_escape(node.spec.type)}</small>"
        yield f'  {node.view}{opening}"{label}"{closing}'
    for node in plan.nodes:
        for ref in node.inputs:
            yield f"  {plan.node(ref).view} --> {node.view}"
        for ref in node.asks:
            yield f"  {plan.dynamic_table(ref).view} -.-> {node.view}"
        for ref in node.lookups:
            yield f"  {plan.node(ref).view} -.-> {node.view}"


def _tree(plan: Plan, node: PlannedNode, printed: set[str], lead: str, below: str) -> Iterator[str]:
    readers = _readers(plan, node)
    repeated = node.view in printed and bool(readers)
    yield f"{lead}{node.spec.name}" + (" (see above)" if repeated else "")
    printed.add(node.view)
    if repeated:
        return
    for position, reader in enumerate(readers):
        last = position == len(readers) - 1
        yield from _tree(plan, reader, printed, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def _readers(plan: Plan, node: PlannedNode) -> tuple[PlannedNode, ...]:
    return () if node in (*plan.sinks, *plan.dynamic_tables) else plan.consumers(node.ref)


def _lines(plan: Plan, node: PlannedNode, facts: NodeFacts) -> Iterator[tuple[str, str]]:
    if node.inputs:
        yield "reads", ", ".join(plan.node(ref).spec.name for ref in node.inputs)
    if node.asks:
        yield "asks", ", ".join(plan.dynamic_table(ref).spec.name for ref in node.asks)
    if node.lookups:
        yield "joins", ", ".join(plan.node(ref).spec.name for ref in node.lookups)
    readers = _readers(plan, node)
    if readers:
        yield "feeds", ", ".join(n.spec.name for n in readers)
    is_table = node in plan.dynamic_tables
    if not is_table:
        yield "key", ", ".join(node.primary_key) or "none"
    if facts.delivery is not None:
        yield "delivery", facts.delivery
    yield "runs", facts.runs
    if node.columns is None and not is_table:
        yield "columns", "not known without --probe"


def _column(field: Field, width: int) -> str:
    return f"{field.name:<{width}}  {field.type}" + ("" if field.nullable else " not null")


def _escape(label: str) -> str:
    return "".join(c if c.isalnum() or c in " ._-" else f"#{ord(c)};" for c in label)
