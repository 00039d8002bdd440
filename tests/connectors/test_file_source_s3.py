"""Files in an object store: found, read, resumed and noticed when they change, as local ones are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from streamling.connector import Room
from streamling.errors import PermanentError, TransientError
from support.file_source_samples import PLENTY, everything, file_source, opened, read, rows_in
from support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.servers

KEY = "events:bounded_progress"


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(store: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)


def lines(first: int, count: int) -> bytes:
    return b"id\n" + b"".join(b"%d\n" % i for i in range(first, first + count))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_objects_are_read_as_files_are(store: S3Server, scheme: str) -> None:
    store.put("in/dt=2024-01-01/a b=ü.csv", lines(0, 3))
    store.put("in/dt=2024-01-02/b.csv", lines(3, 2))
    store.put("in/dt=2024-01-02/_SUCCESS", b"")
    for path in (f"{scheme}://shop/in", f"{scheme}://shop/in/*/*.csv"):
        rows = rows_in(everything(opened(path, "csv")))
        assert [row["id"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["dt"] for row in rows_in(everything(opened(f"{scheme}://shop/in", "csv")))][-1] == "2024-01-02"


def test_a_large_object_is_read_in_many_slices_and_resumed(store: S3Server) -> None:
    store.put("large/a.csv", lines(0, 200_000))
    source, found, position = opened("s3://shop/large", "csv"), [], None
    while (offer := source.offer(Room(70_000, 2, 10_000))) is not None:
        found += [row["id"] for row in rows_in(read(source, offer))]
        position = offer.slices[0].end
        source.open({KEY: json.loads(json.dumps(position))})
    assert found == list(range(200_000))


def test_a_state_with_keys_but_no_bucket_is_understood(store: S3Server) -> None:
    store.put("earlier/a.csv", lines(0, 1))
    store.put("earlier/b.csv", lines(1, 1))
    stored = {"completed": [{"first": "earlier/a.csv", "last": "earlier/a.csv"}]}
    source = opened("s3://shop/earlier", "csv", {KEY: stored})
    assert [row["id"] for row in rows_in(everything(source))] == [1]


def test_an_object_replaced_before_it_is_replayed_is_an_error(store: S3Server) -> None:
    store.put("changing/a.csv", lines(0, 5))
    source = opened("s3://shop/changing", "csv")
    offer = source.offer(PLENTY)
    store.put("changing/a.csv", lines(0, 6))
    with pytest.raises(PermanentError, match="its size was") as caught:
        read(source, offer)
    assert caught.value.code == "FILE_CHANGED"
    store.delete("changing/a.csv")
    with pytest.raises(PermanentError, match="is gone"):
        read(source, offer)


def test_a_store_that_does_not_answer_is_tried_again(store: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("quiet/a.csv", lines(0, 5))
    source = file_source("s3://shop/quiet", "csv")
    source.open({})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(TransientError, match="cannot be read"):
        source.offer(PLENTY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    assert len(rows_in(everything(source))) == 5
