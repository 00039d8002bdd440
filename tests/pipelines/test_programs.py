"""Programs that run pipelines: the code of the guide, and state between two runs."""

from __future__ import annotations

import pytest
from doc_pages import ROOT, blocks_of
from harness import Workspace

pytestmark = pytest.mark.spark

# Follows the code of the guide, which has its names, in one process: a fourth start of Java.
RESUMING = """
from pathlib import Path

Path("numbers.yaml").write_text(PIPELINE)
with streamling.Session({"state_backend": {"sqlite": {"database_path": "own.db"}}}) as session:
    assert session.run("numbers.yaml").rows == 5
    again = session.run(Path("numbers.yaml"))
    assert (again.rows, again.epochs, again.rows_of) == (0, 0, {"kept": []})
print("all well")
"""


def test_the_programs_of_the_guide_run_one_after_the_other_in_one_process(place: Workspace) -> None:
    guide = [block.text for block in blocks_of(ROOT / "docs" / "programs.md", "python")]
    assert len(guide) == 3
    assert place.run_program("\n".join([*guide, RESUMING])).succeeded().stdout == "all well\n"
