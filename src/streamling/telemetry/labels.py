"""The labels that all metrics of a node carry."""

from __future__ import annotations

from collections.abc import Mapping

from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import MAX_LABELS, label_fault
from streamling.spec.pipeline.plugin_options import PluginOptions


def node_labels(node: NodeSpec) -> dict[str, str]:
    """What every metric of a node carries, beside what only its kind or its plugin knows."""
    plugin = isinstance(node.options, PluginOptions)
    fixed = {
        "id": node.name,
        "topology_node_type": node.role.value,
        "operator_type": "plugin" if plugin else node.type,
    }
    identity = {name: getattr(node.options, name, None) for name in node.options.identity_labels}
    known = {name: str(value) for name, value in identity.items() if value is not None}
    return {**known, **node.options.telemetry.labels, **fixed}


def plugin_node_labels(node: NodeSpec, own: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """The labels of a plugin's node, `own` being what the plugin says, and what had to be left out or replaced.

    The rules are those of `telemetry.labels`, but nothing is refused: what breaks one is dropped with a warning.
    """
    written = node.options.telemetry.labels
    kept: dict[str, str] = {}
    warnings: list[str] = []
    for key, value in own.items():
        fault = label_fault(str(key), value) if isinstance(value, str) else "is not text"
        if fault is None and len({*written, *kept, key}) > MAX_LABELS:
            fault = f"is one too many: at most {MAX_LABELS} are allowed, those of the pipeline file included"
        if fault is not None:
            warnings.append(f"{node.described()}: the plugin's label '{key}' is dropped: it {fault}")
            continue
        kept[key] = str(value)
        if key in written and written[key] != value:
            warnings.append(
                f"{node.described()}: the label '{key}' is '{value}' as the plugin says, not '{written[key]}' "
                "as the pipeline file says"
            )
    return {**node_labels(node), **kept}, warnings
