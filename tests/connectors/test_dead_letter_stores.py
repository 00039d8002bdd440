"""Every destination of dead letters keeps what it is given, replaces the letters of an earlier attempt, and remembers
what became of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamling.connector import BadRow, Epoch, Slice
from streamling.errors import PermanentError, StreamlingError, TransientError
from streamling.letters.kafka import LetterTopic
from streamling.letters.letter import Letter, LetterBatch, LetterStatus, RejectStage
from streamling.letters.store import NewestLetters, StoredLetters, letter_stores
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import KafkaSinkSettings, PostgresSinkSettings
from support.doubles import plan_of
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

EPOCH = Epoch("e1", 7, "app", "g", 1_700_000_000_123_456, 0, (Slice("numbers", "k", None, 4, (), 4),))
ODD = json.loads('"\\ud83d"')
Store = Callable[[], StoredLetters]


def postgres_settings(database: Database) -> Settings:
    block = {key.removeprefix("POSTGRES_SINK__").lower(): value for key, value in database.settings().items()}
    return Settings(postgres_sink=PostgresSinkSettings.model_validate(block))


@pytest.fixture(params=["file", "postgres", "kafka"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> Iterator[Store]:
    """Opens the same destination as a new process would."""
    settings, opened = Settings(), []
    match request.param:
        case "file":
            destination = f"{{type: file, path: '{tmp_path / 'letters'}'}}"
        case "postgres":
            settings = postgres_settings(postgres.database())
            destination = "{type: postgres, schema: odd schema, table: 'letters of 100%'}"
        case _:
            settings = Settings(kafka_sink=KafkaSinkSettings(brokers=kafka.brokers))
            destination = f"{{type: kafka, topic: letters-{tmp_path.name.replace('_', '-')[-40:]}-{id(request)}}}"
    plan = plan_of(["numbers"], ["out"], more=f", on_error: dead_letter, dead_letter: {destination}")

    def open_store() -> StoredLetters:
        (made,) = letter_stores(plan, settings).values()
        made.open()
        opened.append(made)
        return made

    yield open_store
    for one in opened:
        one.close()


def batch(epoch: Epoch = EPOCH, stage: RejectStage = RejectStage.DECODE) -> LetterBatch:
    plan = plan_of(["numbers"], ["out"])
    return LetterBatch(plan.nodes[0].spec, stage, epoch, "app")


def letters(of: LetterBatch, *rows: int) -> list[Letter]:
    found = [BadRow("decode_error", f"no {n}", {"topic": "t", "offset": n}, raw=b"\x00\xff") for n in rows]
    return [of.letter(bad, n) for n, bad in enumerate(found, start=1)]


def stored(store: StoredLetters) -> list[str]:
    return sorted(f"{letter.reason_text} {letter.status}" for letter in store.read())


def test_nothing_is_read_before_anything_was_stored(store: Store) -> None:
    assert list(store().read()) == []


def test_a_letter_comes_back_as_it_was_given(store: Store) -> None:
    rows = [
        BadRow(
            "a", "why", {"file": "ü.csv", "row": 3}, raw=b"\x00\xff", raw_key=b"", headers=(("h", b"\x00"), ("h", None))
        ),
        BadRow(
            "b", "row", {"key": "k"}, row={"text": "a\0b", "n": 12345678901234567890, "list": [1.5, None, {"x": ODD}]}
        ),
        BadRow("c", "no place", {}, input="orders"),
    ]
    given = [batch().letter(bad, n) for n, bad in enumerate(rows)]
    assert store().put(batch(), iter(given)) == 3
    assert sorted(store().read(), key=lambda letter: letter.reason_code) == given


def test_the_same_epoch_again_replaces_its_letters_also_in_another_process(store: Store) -> None:
    first, second = store(), store()
    first.put(batch(), iter(letters(batch(), 1, 2)))
    first.put(batch(), iter(letters(batch(), 1, 2)))
    assert stored(first) == ["no 1 open", "no 2 open"]
    second.put(batch(), iter(letters(batch(), 1, 2)))
    assert stored(second) == ["no 1 open", "no 2 open"]


def test_an_attempt_with_fewer_bad_rows_takes_the_others_back(store: Store) -> None:
    one = store()
    one.put(batch(), iter(letters(batch(), 1, 2, 3)))
    one.put(batch(), iter(letters(batch(), 2)))
    assert stored(store()) == ["no 2 open"]
    one.remove(batch())
    assert stored(store()) == []


def test_letters_of_other_epochs_stages_and_processes_stay(store: Store) -> None:
    other_epoch = replace(EPOCH, id="e2", slices=(Slice("numbers", "k", 4, 8, (), 4),))
    one = store()
    one.put(batch(), iter(letters(batch(), 1)))
    one.put(batch(other_epoch), iter(letters(batch(other_epoch), 5)))
    one.put(batch(stage=RejectStage.WRITE), iter(letters(batch(stage=RejectStage.WRITE), 9)))
    one.remove(batch())
    store().remove(batch(other_epoch))
    assert stored(store()) == ["no 1 open", "no 5 open", "no 9 open"]


def test_what_became_of_a_letter_is_remembered(store: Store) -> None:
    one = store()
    one.put(batch(), iter(letters(batch(), 1, 2, 3)))
    by_reason = {letter.reason_text: letter for letter in one.read()}
    one.update([by_reason[reason].with_status(LetterStatus.REPLAYED) for reason in ("no 1", "no 2")])
    store().update([by_reason["no 2"].with_status(LetterStatus.DISCARDED)])
    assert stored(store()) == ["no 1 replayed", "no 2 discarded", "no 3 open"]


def test_a_letter_that_was_rejected_again_has_the_new_reason(store: Store) -> None:
    one = store()
    one.put(batch(), iter(letters(batch(), 1, 2)))
    first = next(letter for letter in one.read() if letter.reason_text == "no 1")
    again = first.rejected_again(replace(first, reason_code="cast_error", reason_text="a\0b 'ü' \ud800", epoch=9))
    one.update([again])
    (found,) = (letter for letter in store().read() if letter.id == first.id)
    assert replace(found, reason_text=again.reason_text) == again
    assert found.reason_text in ("a\0b 'ü' \ud800", "a\N{SYMBOL FOR NULL}b 'ü' \\ud800")
    assert (found.status, found.raw, found.now_us) == ("open", first.raw, first.now_us)
    assert len(list(store().read())) == 2


def test_many_and_large_letters_are_stored(store: Store) -> None:
    given = [
        batch().letter(
            BadRow("big", f"{n}", {"offset": n}, raw=bytes([n % 256]) * (200_000 if n % 100 == 0 else 10)), n
        )
        for n in range(1, 1202)
    ]
    assert store().put(batch(), iter(given)) == 1201
    found = {letter.id: letter for letter in store().read()}
    assert found == {letter.id: letter for letter in given}


# Trouble


SOON = time.monotonic() + 3600


def test_the_newest_letters_are_found_without_their_contents(store: Store) -> None:
    made = store()
    assert made.newest("app", 5, SOON) == NewestLetters([], complete=True)
    for number in range(1, 4):
        epoch = replace(EPOCH, id=f"e{number}", number=number, now_us=EPOCH.now_us + number * 1_000_000)
        one = batch(replace(epoch, slices=(Slice("numbers", "k", number, number + 1, (), 4),)))
        made.put(one, iter(letters(one, *range(10 * number, 10 * number + 4))))
    other = replace(batch(replace(EPOCH, id="e9", slices=(Slice("numbers", "k", 9, 10, (), 4),))), application="other")
    made.put(other, iter(letters(other, *range(50))))
    found = store().newest("app", 5, SOON)
    assert not found.complete
    if not isinstance(made, LetterTopic):  # which is searched in its last messages: those of another application
        assert sorted(letter.epoch for letter in found.letters) == [2, 3, 3, 3, 3]
    whole = store().newest("app", 1000, SOON)
    assert whole.complete
    assert sorted(letter.reason_text for letter in whole.letters) == [
        f"no {n}" for number in range(1, 4) for n in range(10 * number, 10 * number + 4)
    ]
    letter = next(letter for letter in whole.letters if letter.reason_text == "no 30")
    assert (letter.raw, letter.raw_key, letter.headers, letter.row) == (None, None, None, None)
    assert letter.place == "topic t, offset 30"
    made.update([letter.with_status(LetterStatus.DISCARDED)])
    assert [one.id for one in store().newest("app", 1000, SOON).letters if one.status == "discarded"] == [letter.id]
    assert not store().newest("app", 1000, time.monotonic() - 1).complete


def test_a_table_with_other_columns_is_named(postgres: PostgresServer) -> None:
    database = postgres.database()
    database.execute("CREATE TABLE public.dead_letters (id text)")
    plan = plan_of(["numbers"], ["out"], more=", on_error: dead_letter, dead_letter: {type: postgres, schema: public}")
    (store,) = letter_stores(plan, postgres_settings(database)).values()
    store.open()
    with pytest.raises(PermanentError, match=r"public\.dead_letters|column") as caught:
        store.put(batch(), iter(letters(batch(), 1)))
    assert caught.value.node == "numbers"
    store.close()


def test_a_topic_that_takes_only_short_messages_is_named(kafka: KafkaBroker) -> None:
    topic = kafka.topic(max_message_bytes="1000")
    plan = plan_of(["numbers"], ["out"], more=f", on_error: dead_letter, dead_letter: {{type: kafka, topic: {topic}}}")
    (store,) = letter_stores(plan, Settings(kafka_sink=KafkaSinkSettings(brokers=kafka.brokers))).values()
    store.open()
    long = batch().letter(BadRow("big", "big", {"offset": 1}, raw=os.urandom(10_000)), 1)
    with pytest.raises(PermanentError, match="does not accept a dead letter"):
        store.put(batch(), iter([long]))
    assert store.put(batch(), iter(letters(batch(), 1))) == 1
    store.close()


@pytest.mark.parametrize("kind", ["postgres", "kafka: {topic: t}"])
def test_a_server_that_is_not_there_may_come_back(kind: str) -> None:
    name, _, more = kind.partition(": ")
    fields = more.strip("{}")
    plan = plan_of(
        ["numbers"],
        ["out"],
        more=f", on_error: dead_letter, dead_letter: {{type: {name}{', ' + fields if fields else ''}}}",
    )
    settings = Settings(
        kafka_sink=KafkaSinkSettings(brokers="127.0.0.1:1"),
        postgres_sink=PostgresSinkSettings(host="127.0.0.1", port=1, pool_acquire_timeout_secs=1),
    )
    (store,) = letter_stores(plan, settings).values()
    with pytest.raises(TransientError) as caught:
        store.open()
    assert isinstance(caught.value, StreamlingError)
    store.close()
