"""SQL functions of plugins: planned with their types, computed on Arrow arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from streamling.connector import Projection
from streamling.engine.data.functions import used_functions
from streamling.errors import PermanentError
from streamling.plan.sql import compile_expression
from streamling.plugin.functions import Call
from streamling.plugin.registration import PluginOrigin, Provenance
from support.plugin_files import checked, problems, write_plugin

OWN = """
import itertools
import pyarrow.compute as pc

def shout(text, mark):
    if not isinstance(mark, pa.Scalar):
        raise TypeError(type(mark))
    return pc.binary_join_element_wise(pc.utf8_upper(text), mark, "")

counter = itertools.count()
register_udf("Shout", [pa.string(), pa.string()], pa.string(), shout)
register_udf("plus", [pa.int64(), pa.int32()], pa.int64(), lambda a, b: pc.add(a, b))
register_udf("unsigned", [pa.uint64()], pa.uint64(), lambda a: a)
register_udf("ticket", [], pa.int64(), lambda: next(counter), volatile=True)
register_udf("constant", [], pa.int64(), lambda: next(counter))
register_udf("upper", [pa.string()], pa.int64(), lambda a: pc.utf8_length(a))
register_udf("short", [pa.int64()], pa.int64(), lambda a: a[:1])
register_udf("odd", [pa.int64()], pa.int64(), lambda a: "text")
register_udf("broken", [pa.int64()], pa.int64(), lambda a: 1 / 0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_plugin(tmp_path, OWN)
    return tmp_path


def pipeline(sql: str) -> str:
    return f"""\
sources:
  n: {{type: generator, rows: 5, primary_key: id, columns: {{id: id, name: "'a'"}}}}
transforms:
  t:
    type: sql
    primary_key: id
    sql: SELECT id, {sql} AS x FROM n
sinks:
  o: {{type: blackhole, from: t}}
"""


@pytest.mark.parametrize(
    ("sql", "type_"),
    [
        ("shout(name, '!')", "string"),
        ("SHOUT(name, NULL)", "string"),
        ("plus(id, 5)", "int64"),
        ("plus(plus(id, 1), 2)", "int64"),
        ("unsigned(id)", "uint64"),
        ("ticket()", "int64"),
        ("upper(name)", "int64"),
    ],
)
def test_the_planner_knows_the_types_of_plugin_functions(place: Path, sql: str, type_: str) -> None:
    column = checked(place, pipeline(sql)).node("t").schema.get("x")
    assert column is not None and str(column.type) == type_


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("plus(name, 1)", "argument 1 of `plus(int64, int32)`: expected int64, got string"),
        ("plus(id, id)", "argument 2 of `plus(int64, int32)`: expected int32, got int64"),
        ("shout(id, 'x')", "expected string, got int64"),
        ("ticket(1)", "wrong number of arguments for `ticket()`: 1"),
    ],
)
def test_calls_are_checked_against_the_types(place: Path, sql: str, said: str) -> None:
    (problem,) = problems(place, pipeline(sql))
    assert problem.code == "SQL_TYPES"
    assert said in problem.message


@pytest.mark.parametrize("sql", ["json_value(shout(name, '('), '$.a')", "concat(shout(name, '->('), shout('a', name))"])
def test_a_function_may_be_an_argument_of_another(place: Path, sql: str) -> None:
    column = checked(place, pipeline(sql)).node("t").schema.get("x")
    assert column is not None and str(column.type) == "string"


def test_a_function_that_spark_could_not_compute_is_refused_with_a_way_out(place: Path) -> None:
    (problem,) = problems(place, pipeline("instr(shout(name, 'a'), shout(name, 'b'))"))
    assert problem.code == "SQL_UNSUPPORTED"
    assert "the plugin function `shout` cannot be used inside the function around it" in problem.message
    assert problem.hint == "compute it in a transform before this one"


def test_a_built_in_function_is_there_again_without_the_plugin(place: Path) -> None:
    checked(place, pipeline("upper(name)"))
    (place / "own.py").unlink()
    column = checked(place, pipeline("upper(name)")).node("t").schema.get("x")
    assert column is not None and str(column.type) == "string"


@pytest.mark.parametrize(
    ("sql", "functions"),
    [
        ("id", set()),
        ("Shout(name, 'a')", {"shout"}),
        ("plus(plus(id, 1), 2) + ticket()", {"plus", "ticket"}),
        ("concat(name, 'streamling_plugin_function_plus(')", set()),
        ("unnest(make_array(unsigned(id)))", {"unsigned"}),
    ],
)
def test_a_query_knows_the_plugin_functions_it_calls(place: Path, sql: str, functions: set[str]) -> None:
    plan = checked(place, pipeline(sql))
    query = plan.node("t").query
    assert query is not None and query.functions == functions
    assert {udf.name for udf in used_functions(plan, [])} == functions


def test_functions_of_filters_and_columns_of_sources_are_used_too(place: Path) -> None:
    plan = checked(place, pipeline("ticket()"))
    condition = compile_expression("plus(id, 1) > 2", plan.node("n").schema, node="n")
    assert condition.functions == {"plus"}
    used = used_functions(plan, [Projection((("`id`", "id"),), condition.text, functions=condition.functions)])
    assert {udf.name for udf in used} == {"plus", "ticket"}


def call(place: Path, name: str, marks: str, *columns: pa.Array) -> pa.Array:
    checked(place, pipeline("id"))
    rows = len(columns[0]) if columns else 3
    return Call(name, PluginOrigin(Provenance.PATH, str(place / "own.py")))(pa.array([f"{marks}:t"] * rows), *columns)


def test_literals_arrive_as_scalars(place: Path) -> None:
    found = call(place, "shout", "01", pa.array(["a", None]), pa.array(["!", "!"]))
    assert found.to_pylist() == ["A!", None]


def test_carriers_become_the_types_the_function_was_registered_with(place: Path) -> None:
    found = call(place, "unsigned", "0", pa.array([1, 2**64 - 1], pa.decimal128(20, 0)))
    assert found.type == pa.decimal128(20, 0)
    assert [int(value) for value in found.to_pylist()] == [1, 2**64 - 1]


def test_a_volatile_function_is_computed_for_every_row_and_others_once_where_they_can(place: Path) -> None:
    assert len(set(call(place, "ticket", "").to_pylist())) == 3
    assert len(set(call(place, "constant", "").to_pylist())) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("short", "function 'short' of a plugin returned 1 values for 2 rows"),
        ("odd", "function 'odd' of a plugin returned str, not a pyarrow array"),
        ("broken", r"function 'broken' of a plugin failed: ZeroDivisionError: division by zero \(own.py, line"),
    ],
)
def test_an_error_names_the_function_and_the_node(place: Path, name: str, said: str) -> None:
    with pytest.raises(PermanentError, match=said) as found:
        call(place, name, "0", pa.array([1, 2]))
    assert (found.value.code, found.value.node) == ("PLUGIN_FAILED", "t")


def test_a_worker_finds_the_function_by_the_path_of_its_plugin(place: Path, tmp_path: Path) -> None:
    checked(place, pipeline("id"))
    other = tmp_path / "other"
    other.mkdir()
    checked(other, pipeline("id"))  # forgets the functions, as a new process has none
    found = Call("plus", PluginOrigin(Provenance.PATH, str(place / "own.py")))(
        pa.array(["00:t"]), pa.array([1]), pa.array([2])
    )
    assert found.to_pylist() == [3]


def test_a_worker_finds_a_function_that_an_entry_point_registers(tmp_path: Path) -> None:
    """Its own module registers nothing, so importing that is not enough."""
    (tmp_path / "own_functions.py").write_text("def same(values):\n    return values\n")
    (tmp_path / "own_plugin.py").write_text(
        "import pyarrow as pa\nfrom streamling.plugin import register_udf\nfrom own_functions import same\n\n"
        "def register():\n    register_udf('same', [pa.int64()], pa.int64(), same)\n"
    )
    about = tmp_path / "own-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[streamling.plugins]\nown = own_plugin:register\n")
    worker = (
        "import pyarrow as pa\nfrom streamling.plugin.functions import Call\n"
        "from streamling.plugin.registration import PluginOrigin, Provenance\n"
        "origin = PluginOrigin(Provenance.ENTRY_POINT, 'own = own_plugin:register')\n"
        "print(Call('same', origin)(pa.array(['0:n']), pa.array([7])).to_pylist())"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    found = subprocess.run(
        [sys.executable, "-c", worker], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert found.stdout == "[7]\n", found.stderr


def test_a_function_that_a_worker_cannot_find_is_named() -> None:
    with pytest.raises(PermanentError, match="function 'lost' of a plugin is not registered again"):
        Call("lost", PluginOrigin(Provenance.CODE, "json"))(pa.array(["0:n"]), pa.array([7]))
