"""`script`: a function in JavaScript or TypeScript, called for every row.

It runs in a sandbox, QuickJS in WebAssembly, in the process that has the rows: no files, no network, no clock.
`sandbox.py` calls it batch by batch; columns cross in `incoming.py` and `outgoing.py`, and become rows and columns
again in JavaScript that `casting.py` generates from the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Kind, Transform, register
from streamling.errors import SCRIPT_INVALID, UserError
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.plan.written_columns import DeclaredColumns, returned_columns
from streamling.spec.duration import Duration
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import BatchLimits, Parallel, ReadsNode, RequiredKey, TransformOptions
from streamling.spec.settings import Settings


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

    @property
    def batch_limits(self) -> BatchLimits:
        return self.batch_size, self.batch_flush_interval

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        yield from self.check_alone(node)

    def check_alone(self, node: NodeSpec) -> Iterator[Finding]:
        """Compile the script, without running it."""
        from streamling.transforms.script.program import ScriptError, read_program

        try:
            read_program(self.script, self.language)
        except ScriptError as error:
            yield self.problem(node, error)

    def problem(self, node: NodeSpec, error: Exception) -> UserError:
        """An error of the script as an error of the file, at its place there."""
        line, column = getattr(error, "line", None), getattr(error, "column", None)
        where = node.text_locator("script")(line, column or 1) if line else None
        text = f"{node.described()}: the script is not valid: {error}"
        return UserError(SCRIPT_INVALID, text, node=node.name, where=where or node.locate("script"))

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        """A field that the function leaves out is null, so every column is nullable, except the operation."""
        return returned_columns(self.schema_, rows)


def _build(node: NodeSpec, settings: Settings) -> Transform:
    from streamling.transforms.script.transform import ScriptTransform

    if not isinstance(node.options, ScriptOptions):
        raise AssertionError(node.options)
    return ScriptTransform(node, node.options, settings.wasm_script.runtime_wasm_file_path)


register(Kind(Role.TRANSFORM, "script", ScriptOptions, _build))
