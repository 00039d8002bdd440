"""`init` writes valid pipelines, for every kind."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from pydantic import Field

from streamling.cli.main import main
from streamling.cli.skeleton import skeleton
from streamling.connector import Kind
from streamling.connector.kinds import all_kinds
from streamling.engine.preparation import check
from streamling.plugin.loading import load_plugins
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import Options, SinkOptions
from streamling.spec.settings import Settings
from streamling.spec.yaml import MapNode, compose

KINDS = [kind for kind in all_kinds() if kind.built_in]


def kind(role: Role, name: str) -> Kind:
    return next(k for k in KINDS if (k.role, k.name) == (role, name))


def checked(text: str, directory: Path) -> list[str]:
    """Checks a pipeline, which must be valid; returns the names of its nodes."""
    file = directory / "made.yaml"
    file.write_text(text)
    return [node.spec.name for node in check(file, Settings(), probe=False).nodes]


def with_neighbours(tried: Kind) -> list[Kind]:
    """The kinds of a complete pipeline with this kind."""
    around = {Role.SOURCE: kind(Role.SOURCE, "generator"), Role.SINK: kind(Role.SINK, "print")}
    chosen = [around[Role.SOURCE], *([tried] if tried.role is Role.TRANSFORM else []), around[Role.SINK]]
    return [tried if k.role is tried.role else k for k in chosen]


@pytest.mark.parametrize("tried", KINDS, ids=lambda k: f"{k.role.value} {k.name}")
def test_a_pipeline_of_any_kind_is_valid(tried: Kind, tmp_path: Path) -> None:
    chosen = with_neighbours(tried)
    assert len(checked(skeleton(chosen), tmp_path)) == len(chosen)


@pytest.mark.parametrize("target", [k for k in KINDS if k.role is Role.SINK], ids=lambda k: k.name)
@pytest.mark.parametrize("origin", [k for k in KINDS if k.role is Role.SOURCE], ids=lambda k: k.name)
def test_any_source_can_be_written_to_any_sink(origin: Kind, target: Kind, tmp_path: Path) -> None:
    assert len(checked(skeleton([origin, kind(Role.TRANSFORM, "sql"), target]), tmp_path)) == 3


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
    chosen = with_neighbours(tried)
    assert len(checked(skeleton(chosen), tmp_path)) == len(chosen)


def test_a_plugin_shows_its_doc_and_the_options_it_names() -> None:
    load_plugins(Settings())
    by_name = {k.name: k for k in all_kinds()}
    text = skeleton([by_name["basic_plugin.partitioned_source"]])
    assert re.search(r'^    options:\n      rows: "100"$', text, re.MULTILINE)
    assert f"  # {by_name['basic_plugin.partitioned_source'].about[:40]}" in text


def test_options_that_a_plugin_does_not_name_are_not_made_up() -> None:
    load_plugins(Settings())
    text = skeleton([k for k in all_kinds() if k.name == "print_sink"])
    assert "    # options: {}\n" in text


def field_values(text: str, name: str) -> list[str]:
    return re.findall(rf"^    {name}: (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize(("name", "field"), [("file", "path"), ("kafka", "topic")])
def test_no_pipeline_reads_what_it_writes(name: str, field: str) -> None:
    sink = kind(Role.SINK, name)
    values = field_values(skeleton([kind(Role.SOURCE, name), sink, sink]), field)
    assert len(set(values)) == len(values) == 3


def test_sinks_and_dead_letters_of_files_are_under_one_directory() -> None:
    text = skeleton([kind(Role.SOURCE, "file"), kind(Role.SINK, "file")])
    assert field_values(text, "path") == ["data/orders", "out/file_output"]
    assert set(re.findall(r"# dead_letter: (.+)", text)) == {"{type: file, path: out/dead-letters}"}


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


def test_what_can_only_be_checked_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    unready = [k.name for k in KINDS if not k.runs and k.role is Role.SOURCE]
    if not unready:
        pytest.skip("all sources run")
    assert main(["init", "--source", unready[0]]) == 0
    err = capfd.readouterr().err
    sentence = f"the {unready[0]} source can be validated, but not run in this version"
    assert sentence in err
    assert "streamling run" not in err
    assert f"# T{sentence[1:]}." in Path("pipeline.yaml").read_text()


def test_what_runs_is_said_to_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert "run it with `streamling run pipeline.yaml`" in capfd.readouterr().err
    assert "not run" not in Path("pipeline.yaml").read_text()


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


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_descriptions_are_cut_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["plugin", "list"]) == 0
    whole = capfd.readouterr().out.splitlines()
    assert max(map(len, whole)) > 70
    assert not any(line.endswith(("...", "…")) for line in whole)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert main(["plugin", "list"]) == 0
    cut = terminal.getvalue().splitlines()
    shortened = [(short, long) for short, long in zip(cut, whole, strict=True) if short != long]
    assert shortened
    for short, long in shortened:
        assert short.endswith("…")
        assert re.match(r"\W", long[len(short) - 1 :])
