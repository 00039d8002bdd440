"""`script`: a function in JavaScript or TypeScript, called for every row."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Kind, register
from streamling.plan.types import OPERATION_COLUMN, OPERATION_FIELD, Schema
from streamling.plan.types import Field as Column
from streamling.plan.written_columns import DeclaredColumns, declared_fields
from streamling.spec.duration import Duration
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Parallel, ReadsNode, RequiredKey, TransformOptions


class ScriptOptions(Parallel, RequiredKey, ReadsNode, TransformOptions):
    """The function gets a row as an object and returns an object, a list of objects, or `null` for no row."""

    identity_labels = ("language",)
    opaque = ("script",)

    language: Literal["javascript", "js", "typescript", "ts"] = Field(description="Language of the script.")
    script: str = Field(min_length=1, description="One function; its name does not matter.")
    schema_: DeclaredColumns | None = Field(
        default=None, alias="schema", description="Columns it returns and their types; by default those of the input."
    )
    batch_size: int | None = Field(default=None, ge=0, description="Rows per call; 0 is the same as not set.")
    batch_flush_interval: Duration | None = Field(
        default=None,
        validate_default=True,
        description="Longest wait of a partial batch; `1s` if `batch_size` is given and this is not.",
    )

    @field_validator("batch_size")
    @classmethod
    def _zero_is_none(cls, size: int | None) -> int | None:
        return size or None

    @field_validator("batch_flush_interval")
    @classmethod
    def _one_second(cls, interval: timedelta | None, info: ValidationInfo) -> timedelta | None:
        return timedelta(seconds=1) if interval is None and info.data.get("batch_size") else interval

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        """A field that the function leaves out is null, so every column is nullable, except the operation."""
        if self.schema_ is None:
            return Schema(tuple(_nullable(column) for column in rows))
        declared = tuple(_nullable(column) for column in declared_fields(self.schema_))
        return Schema(declared if OPERATION_COLUMN in self.schema_ else (*declared, OPERATION_FIELD))


def _nullable(column: Column) -> Column:
    return OPERATION_FIELD if column.name == OPERATION_COLUMN else Column(column.name, column.type)


register(Kind(Role.TRANSFORM, "script", ScriptOptions))
