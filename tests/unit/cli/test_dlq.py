"""`streamling dlq`: what can be seen and done with dead letters in files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamling.cli.main import main
from streamling.connector import BadRow, Epoch, Slice
from streamling.engine import replay as replay_module
from streamling.engine.preparation import check
from streamling.errors import UserError
from streamling.letters.letter import LetterBatch, RejectStage
from streamling.letters.selection import Filter, dead_letters
from streamling.letters.store import letter_stores
from streamling.plan.types import INT64, Field, Schema
from streamling.spec.settings import Settings
from support.without_spark import WithoutSpark

PIPELINE = """\
sources:
  numbers:
    type: file
    path: in
    format: csv
    schema: {n: int64}
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
sinks:
  table:
    type: postgres
    from: numbers
    schema: public
    table: t
    primary_key: n
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
"""


@pytest.fixture(autouse=True)
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A pipeline with four letters of its own, and one of another application; their ids by their reasons."""
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(PIPELINE)
    plan = check(Path("pipeline.yaml"), Settings(), probe=False)
    stores = letter_stores(plan, Settings())
    numbers, table = plan.nodes[0].spec, plan.nodes[-1].spec
    found = {}
    for number, (node, stage, application, bad) in enumerate(
        [
            (numbers, RejectStage.DECODE, "local_app_v1", BadRow("decode_error", "no n", {"row": 1}, raw=b"x,y\n")),
            (numbers, RejectStage.DECODE, "local_app_v1", BadRow("schema_mismatch", "ö", {"row": 2}, raw=b"\xff")),
            (table, RejectStage.WRITE, "local_app_v1", BadRow("null_key", "null", {"row": 3}, row={"n": None})),
            (table, RejectStage.WRITE, "local_app_v1", BadRow("value_too_large", "big", {}, row={"n": 2**70})),
            (table, RejectStage.WRITE, "other_app", BadRow("foreign", "other", {})),
        ]
    ):
        now = 1_700_000_000_000_000 + number * 3_600_000_000
        epoch = Epoch(
            f"e{number}", number, application, "g", now, 0, (Slice("numbers", "k", number, number + 1, (), 1),)
        )
        batch = LetterBatch(node, stage, epoch, application)
        letter = batch.letter(bad, 1)
        stores[plan.node(node.ref).id].put(batch, iter([letter]))
        found[bad.reason] = letter.id
    return found


def run(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capfd.readouterr()
    try:
        ended = main(["dlq", *arguments])
    except SystemExit as exit_:
        ended = exit_.code  # type: ignore[assignment]
    out, err = capfd.readouterr()
    assert ended == code, err
    return out + err


def reasons(listed: str) -> list[str]:
    return [json.loads(line)["reason_code"] for line in listed.splitlines()]


def test_the_list_has_a_line_per_open_letter_and_totals(ids: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    listed = run(capfd, "list").splitlines()
    assert listed[0] == f"{ids['decode_error']}  2023-11-14T22:13:20.000Z  numbers  decode  decode_error  row 1"
    assert [line.split()[4] for line in listed[:4]] == [
        "decode_error",
        "schema_mismatch",
        "null_key",
        "value_too_large",
    ]
    assert listed[4:] == [
        "",
        "numbers  decode_error  1",
        "numbers  schema_mismatch  1",
        "table  null_key  1",
        "table  value_too_large  1",
        "4 letters",
    ]


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        (["--node", "Table"], ["null_key", "value_too_large"]),
        (["--reason", "null_key"], ["null_key"]),
        (["--since", "2023-11-15T00:13:20Z"], ["null_key", "value_too_large"]),
        (["--since", "2023-11-15T00:13:20"], ["null_key", "value_too_large"]),
        (["--since", "1h"], []),
        (["--limit", "1"], ["decode_error"]),
        (["--status", "replayed"], []),
        (["./pipeline.yaml", "--status", "all", "--node", "numbers"], ["decode_error", "schema_mismatch"]),
    ],
)
def test_options_choose_letters(arguments: list[str], chosen: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert reasons(run(capfd, "list", "--format", "json", *arguments)) == chosen


def test_a_letter_is_shown_in_full(ids: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(run(capfd, "show", ids["decode_error"]))
    assert (shown["raw"], shown["raw_text"], shown["source"]["row"]) == ("eCx5Cg==", "x,y\n", 1)
    assert "raw_text" not in json.loads(run(capfd, "show", ids["schema_mismatch"]))
    assert json.loads(run(capfd, "show", ids["value_too_large"]))["row"] == {"n": 2**70}


def test_the_beginning_of_an_id_is_enough_if_it_is_that_of_one_letter(
    ids: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(run(capfd, "show", ids["decode_error"][:12]))["id"] == ids["decode_error"]
    assert "the ids of 4 letters begin with" in run(capfd, "show", "", code=1)


def test_a_discarded_letter_is_kept_but_not_listed(ids: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "discard", ids["null_key"], "--yes") == "discarded 1 letter\n"
    assert "null_key" not in run(capfd, "list")
    assert reasons(run(capfd, "list", "--format", "json", "--status", "discarded")) == ["null_key"]
    assert run(capfd, "discard", "--node", "table", "--yes") == "discarded 1 letter\n"
    assert run(capfd, "discard", "--all", "--yes") == "discarded 2 letters\n"
    assert run(capfd, "discard", "--all", "--yes") == "no open dead letters\n"
    assert len(reasons(run(capfd, "list", "--format", "json", "--status", "all"))) == 4


def test_an_export_has_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    exported = run(capfd, "export")
    assert [json.loads(line)["raw"] for line in exported.splitlines()] == ["eCx5Cg==", "/w==", None, None]
    assert run(capfd, "export", "--output", "all.jsonl") == "wrote 4 letters to all.jsonl\n"
    assert (tmp_path / "all.jsonl").read_text() == exported


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["show"], 2, "name at least one letter"),
        (["discard"], 2, "name letters, or say --all"),
        (["replay"], 2, "name letters, or say --all"),
        (["replay", "nosuchletter"], 1, "there is no letter nosuchletter"),
        (["discard", "--all"], 2, "confirm with --yes"),
        (["show", "nosuchletter"], 1, "there is no letter nosuchletter"),
        (["list", "a.yaml", "b.yaml"], 2, "there are two pipeline files: a.yaml and b.yaml"),
        (["list", "--since", "yesterday"], 2, "'yesterday' is neither a time nor a duration"),
        (["list", "missing.yaml"], 1, "missing.yaml"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], code: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert told in run(capfd, *arguments, code=code)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            ("format: csv", "format: avro"),
            "file source 'numbers': it cannot decode the payloads of its dead letters again",
        ),
        (("  numbers:", "  others:"), "is of the source 'numbers', which the pipeline does not have"),
    ],
)
def test_letters_that_no_node_can_take_are_not_replayed(
    change: tuple[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PIPELINE.replace(*change).replace("    schema: {n: int64}\n", "")
    Path("pipeline.yaml").write_text(text.replace("from: numbers", "from: others") if "others" in text else text)
    plan = check(Path("pipeline.yaml"), Settings(), probe=False)
    with dead_letters(plan, Settings()) as found:
        letters = found.choose(Filter(reason="decode_error"))
        known = replace(plan, nodes=tuple(replace(n, columns=Schema((Field("n", INT64),))) for n in plan.nodes))
        monkeypatch.setattr(replay_module, "runnable_plan", lambda file, settings: (known, {}))
        replays = replay_module.Replays(Path("pipeline.yaml"), Settings(), found, letters)
        with pytest.raises(UserError) as raised:
            replays.run(WithoutSpark())
        assert told in raised.value.message
        assert replays.outcome().left == 1


def test_a_pipeline_without_dead_letters_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    Path("plain.yaml").write_text(
        "sources: {g: {type: generator, columns: {n: id}}}\nsinks: {b: {type: blackhole, from: g}}\n"
    )
    assert "no node of the pipeline has 'on_error: dead_letter'" in run(capfd, "list", "plain.yaml")


def test_a_broken_file_of_letters_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letters" / "mine.jsonl").write_text('{"id": "x"}\n')
    assert "line 1 of" in (told := run(capfd, "list", code=1))
    assert "mine.jsonl is not a dead letter" in told
