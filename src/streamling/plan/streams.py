"""How rows are distributed over the streams of nodes, as far as it is known before the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamling.errors import PLACEMENT, Caution
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import SingleStream


def placement_cautions(nodes: Sequence[PlannedNode]) -> Iterator[Caution]:
    """Groups of sinks that cannot have the number of streams that they set.

    Sinks that read the same node share the distribution of its rows. If one of them sets a single stream or has
    another key, all of them run on one stream.
    """
    groups: dict[str, list[PlannedNode]] = {}
    for node in nodes:
        keyed = node.spec.role is Role.SINK and isinstance(node.spec.options, SingleStream)
        if keyed and node.inputs:
            groups.setdefault(node.inputs[0], []).append(node)
    for group in groups.values():
        widest = max(group, key=_width)
        if len(group) < 2 or _width(widest) == 1:
            continue
        single = next((n for n in group if _width(n) == 1 and "parallelism" in n.spec.options.model_fields_set), None)
        other = next((n for n in group if n.primary_key != widest.primary_key), None)
        if single is not None:
            reason = f"'{single.spec.name}' has 'parallelism: 1'"
        elif other is not None:
            reason = f"'{other.spec.name}' has another key"
        else:
            continue
        names = ", ".join(f"'{n.spec.name}'" for n in group)
        message = f"the sinks {names} read the same node and run on one stream, not {_width(widest)}: {reason}"
        yield widest.spec.caution(PLACEMENT, message, "parallelism")


def _width(node: PlannedNode) -> int:
    return node.spec.options.streams or 1
