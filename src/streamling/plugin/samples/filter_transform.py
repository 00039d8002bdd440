"""`basic_plugin.filter_transform`: keeps rows whose columns have certain values.

Delivery: whether a row passes depends on its values only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.plugin import PluginContext, PluginError, TransformPlugin, register_transform

if TYPE_CHECKING:
    import pyarrow as pa


@register_transform("basic_plugin", "filter_transform")
class FilterTransform(TransformPlugin):
    """Keeps the rows in which every column named in the options has, as text, the value of the option."""

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        super().__init__(context, options)
        names = context.input_schema.names if context.input_schema is not None else []
        for column in options:
            if column not in names:
                known = ", ".join(names)
                raise PluginError(f"column '{column}' is not in the input, which has: {known}", user=True)

    def output_schema(self) -> pa.Schema:
        return self.context.input_schema

    async def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        matches = pa.repeat(pa.scalar(True), batch.num_rows)
        for column, value in self.options.items():
            same = pc.equal(batch.column(column).cast(pa.string()), value)
            matches = pc.and_(matches, pc.fill_null(same, False))
        return batch.filter(matches)
