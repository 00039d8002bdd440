"""Functions of plugins in Spark: computed by Python workers, on Arrow arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from streamling.connector import Projection
from streamling.engine.data.spark_errors import crossing
from streamling.plan.pipeline import Plan
from streamling.plugin.functions import Call, Udf, registered_functions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def used_functions(plan: Plan, projections: Iterable[Projection]) -> list[Udf]:
    """The plugin functions that queries of the plan call, or the projections of its sources."""
    queries = (node.query for node in plan.nodes if node.query is not None)
    names = frozenset[str]().union(*(q.functions for q in queries), *(p.functions for p in projections))
    return [udf for udf in registered_functions() if udf.name in names]


def open_functions(session: SparkSession, udfs: Sequence[Udf], warm_up: Callable[[], None]) -> None:
    """Make functions known to the session. Workers start in the background, so that the first epoch finds them."""
    from pyspark.sql.functions import arrow_udf

    from streamling.formats.arrow import logical_type
    from streamling.plan.sql.spark_types import spark_type

    for udf in udfs:
        type_ = spark_type(logical_type(udf.return_type, "result"))
        function = arrow_udf(_evaluation(Call(udf.name, udf.origin)), returnType=type_)
        session.udf.register(udf.spark_name, function.asNondeterministic() if udf.volatile else function)
    if udfs:
        threading.Thread(target=_quietly, args=(warm_up,), name="warm workers", daemon=True).start()


def _quietly(action: Callable[[], None]) -> None:
    """Workers that cannot be started now fail the first epoch, which says why."""
    from contextlib import suppress

    with suppress(Exception):
        action()


def _evaluation(call: Call) -> Callable[..., pa.Array]:
    """A plain function with the annotations by which Spark knows what it takes."""
    import pyarrow as pa

    def evaluate(*columns: pa.Array) -> pa.Array:
        with crossing():
            return call(*columns)

    evaluate.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return evaluate
