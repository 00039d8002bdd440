"""Finds pipelines that would read what they write: every run would multiply their rows."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence

from streamling.errors import INVALID_VALUE, UserError
from streamling.plan.contract import ReadsFiles, WritesFiles
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import FileLetters

_HINT = "write to a directory outside the one that the source reads"


def feedback_problems(nodes: Sequence[NodeSpec]) -> Iterator[UserError]:
    """Nodes that write files, with rows or dead letters, which a source of the same pipeline would read."""
    for node in nodes:
        if not node.sound:
            continue
        for file, *field in _files_of(node):
            reader = _reader_of(file, nodes)
            if reader is not None:
                directory = f"'{'.'.join(field)}' is a directory that {reader.described()} reads"
                message = f"{directory}: the pipeline would read what it writes"
                yield node.error(INVALID_VALUE, message, *field, hint=_HINT)


def _files_of(node: NodeSpec) -> Iterator[tuple[str, ...]]:
    """An example of each kind of file that the node may write, and the field that sets its directory."""
    if isinstance(node.options, WritesFiles):
        yield node.options.example_file(node), "path"
    if isinstance(node.options.dead_letter, FileLetters):
        directory = os.path.abspath(os.path.expanduser(node.options.dead_letter.path))  # noqa: PTH100, PTH111 - names only
        yield f"{directory}/{node.ref}-00000001.jsonl", "dead_letter", "path"


def _reader_of(file: str, nodes: Sequence[NodeSpec]) -> NodeSpec | None:
    for node in nodes:
        if node.sound and isinstance(node.options, ReadsFiles) and node.options.would_read(file):
            return node
    return None
