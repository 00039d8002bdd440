"""`handler`: rows posted to a URL, and replaced by the rows of the answer.

Answers are not stored: an epoch that is replayed after a crash sends its requests again, with the same
`Idempotency-Key` each.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, field_validator

from streamling.connector import Kind, Transform, register
from streamling.errors import INVALID_VALUE
from streamling.plan.contract import Finding
from streamling.plan.types import OPERATION_COLUMN, DataType, Schema
from streamling.plan.types import Field as Column
from streamling.plan.written_columns import DeclaredType, check_operation
from streamling.spec.faults import did_you_mean, invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.endpoint import Endpoint
from streamling.spec.pipeline.options import Batched, Parallel, ReadsNode, RequiredKey, TransformOptions
from streamling.spec.settings import Settings


class HandlerOptions(Endpoint, Parallel, Batched, RequiredKey, ReadsNode, TransformOptions):
    """The endpoint gets the input rows unchanged and answers with rows of the output columns, more or fewer."""

    schema_override: dict[str, DeclaredType | None] = Field(
        default_factory=dict,
        description="How the columns of the answer differ: a type changes or adds a column, `null` removes it.",
    )

    @field_validator("schema_override")
    @classmethod
    def _check_override(cls, override: dict[str, DataType | None]) -> dict[str, DataType | None]:
        if "" in override:
            raise invalid_value("has a column without a name")
        check_operation(override)
        return override

    def check_input(self, node: NodeSpec, rows: Schema) -> Iterator[Finding]:
        for name, type_ in self.schema_override.items():
            if type_ is None and name not in rows:
                message = f"'schema_override' removes the column '{name}', which is not in the input"
                yield node.caution(INVALID_VALUE, message, "schema_override", name, hint=did_you_mean(name, rows.names))

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        """A changed column keeps its position and nullability; new columns come last, in order of name."""
        remaining = [
            Column(column.name, self.schema_override.get(column.name) or column.type, column.nullable)
            for column in rows
            if column.name not in self.schema_override or self.schema_override[column.name] is not None
        ]
        added = [
            Column(name, type_)
            for name, type_ in sorted(self.schema_override.items())
            if type_ is not None and name not in rows
        ]
        operation = [column for column in remaining if column.name == OPERATION_COLUMN]
        return Schema((*(column for column in remaining if column not in operation), *added, *operation))


def _build(node: NodeSpec, settings: Settings) -> Transform:
    from streamling.transforms.handler.transform import HandlerTransform

    return HandlerTransform(node, settings)


register(Kind(Role.TRANSFORM, "handler", HandlerOptions, _build))
