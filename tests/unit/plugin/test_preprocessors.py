"""Preprocessors rewrite the text of a pipeline before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamling.errors import UserError
from support.plugin_files import checked, problems, write_plugin

OWN = """
@register_preprocessor("dataset")
class Dataset(PreprocessorPlugin):
    def preprocess_topology(self, text):
        return text.replace("type: dataset", f"type: generator, rows: {self.options['rows']}")

@register_preprocessor("acme.marked")
class Marked(PreprocessorPlugin):
    async def preprocess_topology(self, text):
        return text.replace("dataset", "dataset" + self.options.get("suffix", ""))

@register_preprocessor("broken")
class Broken(PreprocessorPlugin):
    def preprocess_topology(self, text):
        return text[::0]

@register_preprocessor("mute")
class Mute(PreprocessorPlugin):
    def preprocess_topology(self, text): ...
"""
PIPELINE = """\
sources:
  n: {type: dataset, primary_key: id}
sinks:
  o: {type: blackhole, from: n}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_plugin(tmp_path, OWN)
    return tmp_path


def test_a_preprocessor_rewrites_the_text_with_its_options(place: Path) -> None:
    plan = checked(place, PIPELINE, preprocessor_ids=["dataset"], preprocessor_options={"dataset": {"rows": "7"}})
    assert plan.node("n").spec.type == "generator"
    assert plan.node("n").spec.options.model_dump()["rows"] == 7


def test_preprocessors_run_in_the_order_of_the_settings(place: Path) -> None:
    options = {"dataset": {"rows": "7"}, "acme.marked": {"suffix": "2"}}

    def rows(*ids: str) -> object:
        plan = checked(place, PIPELINE, preprocessor_ids=ids, preprocessor_options=options)
        return plan.node("n").spec.options.model_dump()["rows"]

    assert rows("acme.marked", "dataset") == 72  # `dataset2` becomes the generator, and its 2 stands behind the 7
    assert rows("dataset", "acme.marked") == 7


def test_one_that_nobody_provides_is_skipped_with_a_warning(place: Path) -> None:
    text = PIPELINE.replace("type: dataset", "type: generator, rows: 1")
    plan = checked(place, text, preprocessor_ids=["lost"])
    assert "preprocessor 'lost' is not available and is skipped" in [c.message for c in plan.cautions]


def test_a_dataset_that_is_left_names_the_preprocessors_that_were_skipped(place: Path) -> None:
    (problem,) = problems(place, PIPELINE, preprocessor_ids=["lost", "gone"])
    assert "plugin 'dataset' is not available" in problem.message
    assert problem.message.endswith("preprocessors that are not available: lost, gone")


def test_other_kinds_that_are_missing_have_nothing_to_do_with_skipped_preprocessors(place: Path) -> None:
    text = PIPELINE.replace("n: {type: dataset", "n: {type: datasets")
    (problem,) = problems(place, text, preprocessor_ids=["lost"])
    assert "plugin 'datasets' is not available" in problem.message
    assert "preprocessors" not in problem.message


@pytest.mark.parametrize(
    ("id_", "said"),
    [
        ("broken", r"preprocessor 'broken' failed: ValueError: slice step cannot be zero \(own.py, line"),
        ("mute", "preprocessor 'mute' failed: TypeError: preprocess_topology returned NoneType, not text"),
        ("dataset", "preprocessor 'dataset' failed: KeyError: 'rows'"),
    ],
)
def test_one_that_fails_is_an_error_that_names_it(place: Path, id_: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as found:
        checked(place, PIPELINE, preprocessor_ids=[id_])
    assert found.value.code == "PLUGIN_FAILED"


def test_places_in_a_rewritten_text_say_that_it_is(place: Path) -> None:
    options = {"dataset": {"rows": "-7"}}
    (problem,) = problems(place, PIPELINE, preprocessor_ids=["dataset"], preprocessor_options=options)
    assert problem.where is not None
    assert problem.where.file.endswith("pipeline.yaml (rewritten by dataset)")
