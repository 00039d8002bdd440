"""Pipelines that would read what they write: every run would multiply their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamling.errors import INVALID_VALUE, UserError
from streamling.plan.contract import ReadsFiles, WritesFiles
from streamling.spec.pipeline import NodeSpec


def feedback_problems(sources: Sequence[NodeSpec], sinks: Sequence[NodeSpec]) -> Iterator[UserError]:
    """Sinks whose files a source of the same pipeline takes for its own."""
    for sink in sinks:
        if not sink.sound or not isinstance(sink.options, WritesFiles):
            continue
        file = sink.options.example_file(sink)
        for source in sources:
            if source.sound and isinstance(source.options, ReadsFiles) and source.options.would_read(file):
                message = f"'path' lies where {source.described()} reads: the pipeline would read what it writes"
                hint = "write to a directory that is not below the one that is read"
                yield sink.error(INVALID_VALUE, message, "path", hint=hint)
                break
