"""Kinds of nodes are found by name, and loaded when a pipeline uses them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamling.connector import Kind, kinds, register
from streamling.errors import BugError
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import SinkOptions, SourceOptions


def test_every_built_in_kind_registers_under_its_name() -> None:
    found = kinds.kinds()
    assert len(found) == len(list(found)) >= 18
    for role, name in found:
        assert issubclass(found[role, name], SourceOptions) is (role is Role.SOURCE)


def test_a_name_is_taken_once_whether_its_kind_was_loaded_or_not() -> None:
    with pytest.raises(BugError, match="registered twice"):
        register(Kind(Role.SINK, "kafka", SinkOptions))


def test_kinds_that_no_pipeline_uses_are_not_loaded() -> None:
    script = """
import sys
from streamling.connector import kinds
from streamling.spec.pipeline import load_pipeline
text = "sources: {s: {type: generator}}\\nsinks: {o: {type: blackhole, from: s}, p: {type: banana, from: s}}"
load_pipeline(text, "p.yaml", kinds.kinds())
print(sorted(m for m in sys.modules if m.startswith(("streamling.sources.", "streamling.sinks."))))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['streamling.sinks.blackhole', 'streamling.sources.generator']"
