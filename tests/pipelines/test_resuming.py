"""A run goes on where the one before has stopped, and the state says where that is.

One pipeline is run, run again, extended and run once more; each test looks at what happened.
"""

from __future__ import annotations

import pytest

from support.harness import Finished, MakeWorkspace, Workspace, printed

pytestmark = pytest.mark.spark

PIPELINE = """\
sources:
  numbers:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, square: id * id}}
sinks:
  lines: {{type: print, from: numbers}}
  files: {{type: file, from: numbers, path: files, format: json}}
"""


@pytest.fixture(scope="module")
def place(new_place: MakeWorkspace) -> Workspace:
    return new_place()


@pytest.fixture(scope="module")
def runs(place: Workspace) -> list[Finished]:
    finished = []
    for rows in (40, 40, 100):
        place.write(PIPELINE.format(rows=rows))
        finished.append(place.run().succeeded())
    return finished


def test_the_first_run_delivers_what_there_is(runs: list[Finished]) -> None:
    assert [row["id"] for _, _, _, row in printed(runs[0].stdout)] == list(range(40))


def test_a_run_with_nothing_new_ends_at_once_and_delivers_nothing(runs: list[Finished]) -> None:
    assert runs[1].stdout == ""
    assert "done: 0 rows in 0 epochs" in runs[1].stderr


def test_a_later_run_goes_on_behind_the_last_row(runs: list[Finished]) -> None:
    assert [row["id"] for _, _, _, row in printed(runs[2].stdout)] == list(range(40, 100))


def test_nothing_is_doubled_in_the_files(place: Workspace, runs: list[Finished]) -> None:
    assert place.rows("files", "json") == [{"id": i, "square": i * i, "_gs_op": "i"} for i in range(100)]


def test_epoch_numbers_go_on_across_runs(place: Workspace, runs: list[Finished]) -> None:
    assert place.state()["__epoch"] == 2


def test_state_list_names_the_position_of_the_source(place: Workspace, runs: list[Finished]) -> None:
    assert place.state()["numbers:generator"] == {"next": 100}


def test_state_show_prints_one_key_and_refuses_an_unknown_one(place: Workspace, runs: list[Finished]) -> None:
    assert '"next": 100' in place.run("state", "show", "numbers:generator").succeeded().stdout
    unknown = place.run("state", "show", "nothing")
    assert (unknown.code, unknown.stderr) == (1, "there is no state key 'nothing'; `streamling state list` lists all\n")


def test_another_application_has_no_state(place: Workspace, runs: list[Finished]) -> None:
    assert place.run("state", "list", "--application", "other").succeeded().stdout == ""


def test_positions_of_another_pipeline_file_are_told(place: Workspace, runs: list[Finished]) -> None:
    (place.directory / "other.yaml").write_text((place.directory / "pipeline.yaml").read_text())
    finished = place.run("run", "other.yaml").succeeded()
    assert "come from another pipeline file" in finished.stderr
    assert "pipeline.yaml" in finished.stderr


def test_state_reset_asks_before_it_forgets(place: Workspace, runs: list[Finished]) -> None:
    assert place.run("state", "reset").code == 2
    assert place.state()["numbers:generator"] == {"next": 100}
