"""`init` writes pipelines that are valid from the first line, for every kind there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import Field

from streamling.cli.main import main
from streamling.cli.skeleton import skeleton
from streamling.engine.preparation import check
from streamling.plugin.loading import load_plugins
from streamling.plugin.registry import Kind, all_kinds
from streamling.spec.options import Options, SinkOptions
from streamling.spec.pipeline import Role
from streamling.spec.settings import Settings
from streamling.spec.yaml import MapNode, compose

KINDS = [kind for kind in all_kinds() if kind.built_in]


def kind(role: Role, name: str) -> Kind:
    return next(k for k in KINDS if (k.role, k.name) == (role, name))


def checked(text: str, directory: Path) -> list[str]:
    """The problems of a pipeline, which are none; returns the names of its nodes."""
    file = directory / "made.yaml"
    file.write_text(text)
    return [node.spec.name for node in check(file, Settings(), probe=False).nodes]


@pytest.mark.parametrize("tried", KINDS, ids=lambda k: f"{k.role.value} {k.name}")
def test_a_pipeline_of_any_kind_is_valid(tried: Kind, tmp_path: Path) -> None:
    around = {Role.SOURCE: kind(Role.SOURCE, "generator"), Role.SINK: kind(Role.SINK, "print")}
    chosen = [around[Role.SOURCE], *([tried] if tried.role is Role.TRANSFORM else []), around[Role.SINK]]
    chosen = [tried if k.role is tried.role else k for k in chosen]
    assert len(checked(skeleton(chosen), tmp_path)) == len(chosen)


@pytest.mark.parametrize("target", [k for k in KINDS if k.role is Role.SINK], ids=lambda k: k.name)
@pytest.mark.parametrize("origin", [k for k in KINDS if k.role is Role.SOURCE], ids=lambda k: k.name)
def test_any_source_can_be_written_to_any_sink(origin: Kind, target: Kind, tmp_path: Path) -> None:
    checked(skeleton([origin, kind(Role.TRANSFORM, "sql"), target]), tmp_path)


@pytest.mark.parametrize("tried", KINDS, ids=lambda k: f"{k.role.value} {k.name}")
def test_every_field_is_there_with_its_meaning(tried: Kind) -> None:
    text = skeleton([tried])
    for name, field in tried.options.model_fields.items():
        assert re.search(rf"^    (# )?{field.alias or name}:", text, re.MULTILINE), name
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("tried", KINDS, ids=lambda k: f"{k.role.value} {k.name}")
def test_a_field_is_set_by_taking_the_mark_away(tried: Kind) -> None:
    uncommented = re.sub(r"^    # (\w+:)", r"    \1", skeleton([tried]), flags=re.MULTILINE)
    tree = compose(uncommented, "made.yaml")
    assert isinstance(tree, MapNode)
    (section,) = [entry.value for entry in tree.entries]
    assert isinstance(section, MapNode)
    node = section.entries[0].value
    assert isinstance(node, MapNode)
    assert {entry.key for entry in node.entries} >= {f.alias or n for n, f in tried.options.model_fields.items()}


@pytest.mark.parametrize(
    ("role", "name"),
    [
        (Role.SOURCE, "basic_plugin.random_source"),
        (Role.SOURCE, "basic_plugin.partitioned_source"),
        (Role.TRANSFORM, "basic_plugin.filter_transform"),
        (Role.TRANSFORM, "basic_plugin.partitioned_transform"),
        (Role.SINK, "basic_plugin.partitioned_file_sink"),
        (Role.SINK, "print_sink"),
    ],
)
def test_the_pipeline_of_a_plugin_is_valid(role: Role, name: str, tmp_path: Path) -> None:
    load_plugins(Settings())
    tried = next(k for k in all_kinds() if (k.role, k.name) == (role, name))
    test_a_pipeline_of_any_kind_is_valid(tried, tmp_path)


class Inner(Options):
    code: int = Field(ge=7, description="A number.")


class OddOptions(SinkOptions):
    """Writes somewhere else."""

    colour: str = Field(examples=["rot, grün"], description="Which colour.")
    inner: Inner = Field(description="A map.")
    inners: dict[str, Inner] = Field(description="Maps.")
    on: bool = Field(description="Whether.")


def test_a_kind_of_a_plugin_gets_its_own_samples(tmp_path: Path) -> None:
    text = skeleton([kind(Role.SOURCE, "generator"), Kind(Role.SINK, "odd", OddOptions)])
    assert '    colour: "rot, grün"\n' in text
    assert "    inner: {code: 7}\n" in text
    assert "    inners: {id: {code: 7}}\n" in text
    assert "  # Writes somewhere else." in text


def test_nodes_of_one_kind_have_names_of_their_own(tmp_path: Path) -> None:
    sql = kind(Role.TRANSFORM, "sql")
    names = checked(skeleton([kind(Role.SOURCE, "generator"), sql, sql, kind(Role.SINK, "print")]), tmp_path)
    assert names == ["orders", "selected", "selected_2", "screen"]


# The command


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_pipeline_is_written_and_can_be_checked(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert main(["validate", "pipeline.yaml"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "wrote pipeline.yaml" in err


def test_a_file_is_never_replaced_unasked(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("precious")
    assert main(["init", "mine.yaml"]) == 1
    assert "[FILE_EXISTS]" in capfd.readouterr().err
    assert Path("mine.yaml").read_text() == "precious"
    assert main(["init", "mine.yaml", "--force"]) == 0
    assert Path("mine.yaml").read_text().startswith("# ")


def test_a_dash_is_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "-", "--source", "kafka", "--transform", "sql", "--sink", "postgres", "--sink", "file"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert list(Path().iterdir()) == []
    Path("made.yaml").write_text(out)
    assert main(["validate", "made.yaml"]) == 0


def test_an_unknown_kind_is_answered_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--source", "kafak"]) == 1
    err = capfd.readouterr().err
    assert "there is no source type 'kafak'" in err
    assert "did you mean 'kafka'?" in err


def test_a_place_that_cannot_be_written_to_is_exit_1(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "nowhere/pipeline.yaml"]) == 1
    assert "[PIPELINE_FILE]" in capfd.readouterr().err


def test_all_kinds_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--list"]) == 0
    listed = capfd.readouterr().out
    assert main(["plugin", "list"]) == 0
    assert capfd.readouterr().out == listed
    assert all(re.search(rf"^  {k.name} ", listed, re.MULTILINE) for k in KINDS)
