"""The rows of dynamic tables in memory, and the texts in which Postgres gets and gives values."""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from streamling.plan.types import INT64, STRING, Field, Schema
from streamling.transforms.dynamic_table import hashing, keyed_rows
from streamling.transforms.dynamic_table.copied_rows import CopiedRows
from streamling.transforms.dynamic_table.keyed_rows import KeyedRows, key_schema
from streamling.transforms.dynamic_table.postgres import array_text, index_name

ODD = ["", "a", "é", "日本", "x" * 7, "x" * 8, "x" * 9, "y" * 256, "y" * 257, "y" * 5000, "z\0", "z"]


def keys(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.string())


def test_texts_are_found_exactly_however_they_were_added() -> None:
    chance = random.Random(1)
    rows, known = KeyedRows(key_schema()), set[str]()
    for _ in range(60):
        added = {chance.choice(ODD) + str(chance.randrange(500)) for _ in range(chance.randrange(1, 40))}
        rows.add(pa.table([keys(sorted(added))], ["key"]))
        known |= added
        asked = [text + str(n) for text in ODD for n in chance.sample(range(600), 20)]
        assert rows.look_up(keys(asked)).present.to_pylist() == [text in known for text in asked]
    assert len(rows) == len(known)


def test_a_later_row_replaces_an_earlier_one_with_its_key() -> None:
    rows, known = KeyedRows(key_schema([pa.field("n", pa.int64())])), dict[str, int | None]()
    for n in range(40):
        added = {f"k{(n * 7 + i) % 30}": n * 100 + i if i % 3 else None for i in range(n % 5 + 1)}
        rows.add(pa.table([keys(list(added)), pa.array(list(added.values()), pa.int64())], ["key", "n"]))
        known |= added
    found = rows.look_up(keys([f"k{n}" for n in range(40)]))
    assert found.present.to_pylist() == [f"k{n}" in known for n in range(40)]
    assert found.columns["n"].to_pylist() == [known.get(f"k{n}") for n in range(40)]


def test_large_segments_stay_apart_and_hold_no_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "_SEGMENT_ROWS", 64)
    chance = random.Random(2)
    rows, known = KeyedRows(key_schema([pa.field("n", pa.int64())])), dict[str, int]()
    loaded = {f"k{n}": n for n in range(300)}
    for start in range(0, 300, 30):
        some = dict(list(loaded.items())[start : start + 30])
        rows.load(pa.table([keys(list(some)), pa.array(list(some.values()))], ["key", "n"]), unique=True)
    rows.loaded()
    known |= loaded
    for n in range(400):
        added = {f"k{chance.randrange(400)}": n * 1000 + i for i in range(chance.randrange(1, 12))}
        rows.add(pa.table([keys(list(added)), pa.array(list(added.values()))], ["key", "n"]))
        known |= added
        assert len(rows) <= 2 * len(known)
    found = rows.look_up(keys([f"k{n}" for n in range(450)]))
    assert found.present.to_pylist() == [f"k{n}" in known for n in range(450)]
    assert found.columns["n"].to_pylist() == [known.get(f"k{n}") for n in range(450)]


def test_keys_of_a_table_without_a_unique_index_may_be_loaded_twice() -> None:
    rows = KeyedRows(key_schema())
    for _ in range(2):
        rows.load(pa.table([keys(["a", "b"])], ["key"]), unique=False)
    rows.loaded()
    assert len(rows) == 2
    assert rows.look_up(keys(["b", "c"])).present.to_pylist() == [True, False]


def test_texts_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "hash_texts", lambda texts: np.ones(len(texts), np.uint64))
    rows = KeyedRows(key_schema())
    rows.add(pa.table([keys(["a", "b", "c"])], ["key"]))
    assert rows.look_up(keys(["c", "d", "a"])).present.to_pylist() == [True, False, True]


def test_hashes_do_not_depend_on_where_a_text_is() -> None:
    texts = pa.array(ODD * 2, pa.large_string())
    once = hashing.hash_texts(texts.slice(len(ODD)))
    assert hashing.hash_texts(texts)[: len(ODD)].tolist() == once.tolist()
    assert hashing.hash_texts(pa.array(ODD, pa.string())).tolist() == once.tolist()
    assert len(set(once.tolist())) == len(ODD)


def test_texts_become_an_array_of_postgres() -> None:
    assert array_text(keys(["a", 'b"c', "d\\e", "", "{x,y}", "NULL"])) == r'{"a","b\"c","d\\e","","{x,y}","NULL"}'


def test_rows_of_postgres_keep_nulls_quotes_and_lines_apart() -> None:
    copied = CopiedRows("t", Schema((Field("name", STRING), Field("n", INT64))))
    rows = copied.read([b'"a","x ""y""\nz","5"\n', b'"","",\n', b'"b",,"-7"\n'])
    assert rows.column("#key").to_pylist() == ["a", "", "b"]
    assert rows.column("name").to_pylist() == ['x "y"\nz', "", None]
    assert rows.column("n").to_pylist() == [5, None, -7]
    found = copied.found(keys(["b", "c", ""]), [rows])
    assert found.present.to_pylist() == [True, False, True]
    assert found.columns["n"].to_pylist() == [-7, None, None]


def test_packed_rows_keep_nulls_and_empty_texts_apart() -> None:
    def sent(*lengths: int) -> bytes:
        return struct.pack(">5i", 1, 0, 23, len(lengths), 1) + b"".join(struct.pack(">2i", 4, n) for n in lengths)

    copied = CopiedRows("t", Schema((Field("name", STRING), Field("n", INT64))))
    rows = copied.unpack([b"ab\xc3\xa9", sent(1, 0, 3), b"x", sent(-1, 1, 0), b"5-7", sent(1, -1, 2)])
    assert rows.column("#key").to_pylist() == ["a", "", "bé"]
    assert rows.column("name").to_pylist() == [None, "x", ""]
    assert rows.column("n").to_pylist() == [5, None, -7]
    assert copied.unpack([None] * 6).num_rows == 0


def test_long_names_of_an_index_are_cut_and_stay_apart() -> None:
    assert index_name("vips", "at") == "idx_vips_at"
    names = {index_name("t" * 50, f"{'c' * 20}{n}") for n in range(3)}
    assert len(names) == 3
    assert all(len(name) == 63 for name in names)
