"""The labels of all metrics of a node."""

from __future__ import annotations

from collections.abc import Mapping

from streamling.spec.mask import mask_url
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import MAX_LABELS, label_fault
from streamling.spec.pipeline.plugin_options import PluginOptions


def node_labels(node: NodeSpec) -> dict[str, str]:
    """The labels of every metric of a node, without those that only its kind or its plugin adds."""
    plugin = isinstance(node.options, PluginOptions)
    fixed = {
        "id": node.name,
        "topology_node_type": node.role.value,
        "operator_type": "plugin" if plugin else node.type,
    }
    identity = {name: getattr(node.options, name, None) for name in node.options.identity_labels}
    known = {name: mask_url(str(value)) for name, value in identity.items() if value is not None}
    return {**known, **node.options.telemetry.labels, **fixed}


def plugin_node_labels(node: NodeSpec, own: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """The labels of a plugin's node, including the plugin's `own`, and warnings about dropped or replaced labels.

    The rules are those of `telemetry.labels`, but nothing fails: a label that breaks a rule is dropped with a warning.
    """
    declared = node.options.telemetry.labels
    labels: dict[str, str] = {}
    warnings: list[str] = []
    for key, value in own.items():
        fault = label_fault(str(key), value) if isinstance(value, str) else "is not text"
        if fault is None and len({*declared, *labels, key}) > MAX_LABELS:
            fault = f"is one too many: at most {MAX_LABELS} are allowed, including those of the pipeline file"
        if fault is not None:
            warnings.append(f"{node.described()}: the plugin's label '{key}' is dropped: it {fault}")
            continue
        labels[key] = str(value)
        if key in declared and declared[key] != value:
            warnings.append(
                f"{node.described()}: the plugin sets the label '{key}' to '{value}', which replaces '{declared[key]}' "
                "from the pipeline file"
            )
    return {**node_labels(node), **labels}, warnings
