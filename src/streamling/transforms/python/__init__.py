"""`python`: a function in Python, called for every row or every batch of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from streamling.connector import Kind, register
from streamling.errors import PYTHON_UNUSABLE, UserError
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.plan.written_columns import DeclaredColumns, returned_columns
from streamling.spec.faults import invalid_value, missing_field
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Parallel, ReadsNode, RequiredKey, TransformOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    from streamling.connector import Transform
    from streamling.transforms.python.program import CodeFault, Program

_NAME = r"[^\W\d]\w*"
_REFERENCE = re.compile(rf"{_NAME}(\.{_NAME})*:{_NAME}")
# Behind the name of a file that preprocessors have changed.
_REWRITTEN = " (rewritten by "


class Per(StrEnum):
    ROW = "row"
    BATCH = "batch"


class PythonOptions(Parallel, RequiredKey, ReadsNode, TransformOptions):
    """The function gets a row as a dict and returns a dict, a list of dicts, or `None` for no row; with `per: batch` it
    gets and returns a `pyarrow.RecordBatch`."""

    opaque = ("code",)

    function: str | None = Field(
        default=None,
        description="The function, as `module:function`. The module is beside the pipeline file, or installed. "
        "Either this or `code` is required.",
        examples=["shaping:shape_order"],
    )
    code: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="The code itself. Its function is `process`, else `invoke`, else the last one.",
    )
    per: Per = Field(default=Per.ROW, description="What the function is called with: a row, or a batch of rows.")
    schema_: DeclaredColumns | None = Field(
        default=None, alias="schema", description="Columns it returns and their types; by default those of the input."
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="Rows of a batch, with `per: batch`; the last batch of an epoch may have fewer."
    )
    deterministic: bool = Field(
        default=False,
        description="The same input gives the same output: rows may be computed again instead of being kept.",
    )
    _program: Program | None = PrivateAttr(default=None)

    @field_validator("function")
    @classmethod
    def _check_reference(cls, function: str | None) -> str | None:
        if function is not None and not _REFERENCE.fullmatch(function):
            raise invalid_value(f"is '{function}'; it must be 'module:function'")
        return function

    @field_validator("code")
    @classmethod
    def _check_one(cls, code: str | None, info: ValidationInfo) -> str | None:
        if "function" in info.data and (code is None) == (info.data["function"] is None):
            if code is None:
                raise missing_field("is missing, and so is 'function': one of them is required")
            raise invalid_value("is not allowed together with 'function'")
        return code

    @field_validator("batch_size")
    @classmethod
    def _check_batched(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is not None and info.data.get("per") is Per.ROW:
            raise invalid_value("is only allowed with 'per: batch'")
        return size

    @property
    def by_batch(self) -> bool:
        return self.per is Per.BATCH

    @property
    def fingerprint(self) -> str:
        """The texts of the modules belong to it: with other code the same input may give other rows."""
        return f"{self!r}{self._program.digest if self._program is not None else ''}"

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        """A field that the function leaves out is null, so every column is nullable, except the operation."""
        return returned_columns(self.schema_, rows)

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        yield from self.check_alone(node)

    def check_alone(self, node: NodeSpec) -> Iterator[Finding]:
        """The code is read, not run."""
        from streamling.transforms.python.program import CodeFault

        try:
            self.program(node)
        except CodeFault as fault:
            yield self.refusal(node, fault)

    def program(self, node: NodeSpec) -> Program:
        """The code, read once and kept. Raises CodeFault."""
        from streamling.transforms.python.program import inline_program, module_program

        if self._program is None:
            pipeline = Path(node.where.file.partition(_REWRITTEN)[0])
            directory = pipeline.absolute().parent
            if self.code is not None:
                lines = _lines_in_file(node, self.code)
                self._program = inline_program(self.code, node.name, pipeline.name, directory, lines)
            else:
                self._program = module_program(self.function or "", directory)
        return self._program

    def refusal(self, node: NodeSpec, fault: CodeFault) -> UserError:
        """The error of code that cannot be used, at its place in the pipeline file."""
        from streamling.transforms.python.program import INLINE_MODULE

        file = fault.file
        if self.code is None or (file is not None and file.name != INLINE_MODULE):
            message = fault.message if file is None else f"{Path(file.path).name}, line {fault.line}: {fault.message}"
            return node.error(PYTHON_UNUSABLE, message, "code" if self.code is not None else "function")
        where = node.text_locator("code")(fault.line, fault.column) if file is not None else None
        message = f"{node.described()}: 'code': {fault.message}"
        return UserError(PYTHON_UNUSABLE, message, node=node.name, where=where or node.locate("code"))


def _lines_in_file(node: NodeSpec, code: str) -> list[int]:
    locate = node.text_locator("code")
    places = (locate(line, 1) for line in range(1, code.count("\n") + 2))
    return [place.line if place is not None else node.where.line for place in places]


def _build(node: NodeSpec, settings: Settings) -> Transform:
    from streamling.transforms.python.processor import PythonTransform

    if not isinstance(node.options, PythonOptions):
        raise TypeError(node.options)
    return PythonTransform(node, node.options)


_SAMPLE = {"code": "def process(row):\n    return row"}

register(Kind(Role.TRANSFORM, "python", PythonOptions, _build, samples=_SAMPLE))
