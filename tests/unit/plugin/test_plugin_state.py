"""State of plugins: whose keys are whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamling.engine.protocol.state import MemoryState, SqliteState, StateStore
from streamling.errors import UserError
from streamling.plugin import PluginContext


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return MemoryState() if request.param == "memory" else SqliteState(tmp_path / "s.db", "app")


def context(store: StateStore, name: str = "node", **more: int | bool) -> PluginContext:
    return PluginContext(name, store=lambda: store, **more)  # type: ignore[arg-type]


def test_the_nodes_own_value_stands_under_its_name(store: StateStore) -> None:
    state = context(store).state
    assert state.get() is None
    state.put({"offset": [1, None]})
    assert (state.get(), store.items()) == ({"offset": [1, None]}, {"node": {"offset": [1, None]}})
    state.remove()
    assert store.items() == {}


def test_keys_stand_under_a_prefix_which_is_the_name_unless_it_is_set(store: StateStore) -> None:
    state = context(store).state
    state.put_kv("a", 1)
    state.set_prefix("shared")
    state.put_kv("a", 2)
    state.set_prefix("")
    state.put_kv("a", 3)
    assert store.items() == {"node:a": 1, "shared:a": 2, "a": 3}
    assert state.get_kv("a") == 3
    state.remove_kv("a")
    assert store.items() == {"node:a": 1, "shared:a": 2}


def test_clearing_removes_the_nodes_own_keys_only(store: StateStore) -> None:
    own, other = context(store).state, context(store, "node2").state
    for state in (own, other):
        state.put(1)
        state.put_kv("k", 2)
    own.clear()
    assert store.items() == {"node2": 1, "node2:k": 2}


def test_instances_of_a_partitioned_plugin_have_state_of_their_own_and_one_in_common(store: StateStore) -> None:
    first, second = (context(store, partitioned=True, partition_index=n, partition_count=2) for n in (0, 1))
    first.state.put("a")
    second.state.put("b")
    second.shared_state.put("both")
    assert store.items() == {"node[0]": "a", "node[1]": "b", "node": "both"}
    assert first.shared_state.get() == "both"
    first.state.clear()
    assert store.items() == {"node[1]": "b", "node": "both"}


def test_the_keys_of_the_engine_are_out_of_reach(store: StateStore) -> None:
    state = context(store).state
    state.set_prefix("")
    for touch in (lambda: state.put_kv("__epoch", 1), lambda: state.get_kv("__pending:x")):
        with pytest.raises(UserError, match="two underscores"):
            touch()
    with pytest.raises(UserError, match="two underscores"):
        context(store, "__epoch").state.put(3)


def test_what_is_not_json_is_refused(store: StateStore) -> None:
    with pytest.raises(UserError, match="the value for the state key 'node' is not JSON"):
        context(store).state.put(object())  # type: ignore[arg-type]


def test_a_context_without_a_run_keeps_its_state_in_memory() -> None:
    alone = PluginContext()
    alone.state.put([1])
    assert (alone.state.get(), alone.shared_state.get()) == ([1], [1])
