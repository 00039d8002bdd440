"""Functions of plugins in Spark: computed by Python workers, on Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from streamling.connector import Projection, Source
from streamling.engine.data.spark_errors import errors_to_driver, spark_errors
from streamling.engine.process.workers import PythonWorkers
from streamling.plan.pipeline import Plan
from streamling.plugin.functions import Call, Udf, registered_functions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def used_functions(plan: Plan, projections: Iterable[Projection]) -> list[Udf]:
    """The plugin functions that the plan's queries or the projections of its sources call."""
    queries = (node.query for node in plan.nodes if node.query is not None)
    names = frozenset[str]().union(*(q.functions for q in queries), *(p.functions for p in projections))
    return [udf for udf in registered_functions() if udf.name in names]


def register_functions(session: SparkSession, udfs: Sequence[Udf]) -> None:
    """Make functions available in queries of the session."""
    from pyspark.sql.functions import arrow_udf

    from streamling.formats.arrow import logical_type
    from streamling.plan.sql.spark_types import spark_type

    for udf in udfs:
        type_ = spark_type(logical_type(udf.return_type, "result"))
        function = arrow_udf(_evaluation(Call(udf.name, udf.origin)), returnType=type_)
        session.udf.register(udf.spark_name, function.asNondeterministic() if udf.volatile else function)


def _evaluation(call: Call) -> Callable[..., pa.Array]:
    """A plain function with the annotations from which Spark infers its arguments."""
    import pyarrow as pa

    def evaluate(*columns: pa.Array) -> pa.Array:
        with errors_to_driver():
            return call(*columns)

    evaluate.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return evaluate


def open_functions(session: SparkSession, plan: Plan, sources: Iterable[Source], workers: PythonWorkers) -> None:
    """Register the plugin functions that queries call, and start the workers that will compute them."""
    functions = used_functions(plan, [source.select for source in sources if source.select is not None])
    with spark_errors(None):
        register_functions(session, functions)
    if functions:
        workers.start_in_background()  # if that fails, the first epoch fails too, and its error says why
