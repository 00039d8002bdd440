"""A plugin that adds twice the value of a column, for pipelines without SQL."""

from __future__ import annotations

_DOUBLE = """\
import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import TransformPlugin, register_transform


@register_transform("double")
class Double(TransformPlugin):
    stateless = True

    def output_schema(self):
        fields = [f for f in self.context.input_schema if f.name != "_gs_op"]
        return pa.schema([*fields, pa.field("twice", pa.int64()), pa.field("_gs_op", pa.string(), False)])

    def process_batch(self, batch):
        kept = {kept}
        twice = pc.multiply(kept.column("{column}"), 2)
        schema = self.output_schema()
        columns = [twice if name == "twice" else kept.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
"""


def doubling(column: str, rows: str = "batch") -> str:
    """The text of the plugin; `rows` is what becomes of a batch before."""
    return _DOUBLE.replace("{column}", column).replace("{kept}", rows)
