"""A transform written in Python: loyalty points for orders. The demo uses it."""

import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import PluginError, TransformPlugin, register_transform


@register_transform("shop.loyalty")
class Loyalty(TransformPlugin):
    """Adds the column `points`: one for every `euros_per_point` of the column `total`."""

    def __init__(self, context, options):
        super().__init__(context, options)
        self.euros_per_point = int(options.get("euros_per_point", "10"))
        if self.euros_per_point < 1:
            raise PluginError("euros_per_point must be at least 1", user=True)

    def output_schema(self):
        *columns, operation = self.context.input_schema
        return pa.schema([*columns, pa.field("points", pa.int64()), operation])

    def process_batch(self, batch):
        points = pc.cast(pc.floor(pc.divide(batch.column("total"), self.euros_per_point)), pa.int64())
        *columns, operation = batch.columns
        return pa.RecordBatch.from_arrays([*columns, points, operation], schema=self.output_schema())
