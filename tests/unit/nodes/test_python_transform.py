"""What a `python` transform does with the rows of its function, and with functions it cannot use."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamling.connector import Counted, Placement, Runtime, TransformContext, kinds
from streamling.engine.preparation import check
from streamling.engine.protocol.state import MemoryState
from streamling.errors import InvalidPipeline, PermanentError, UserError
from streamling.plan.pipeline import Plan
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, DataType, Field, Schema
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics
from streamling.transforms.python import processor as module
from streamling.transforms.python.printing import MAX_LENGTH, LineLimit, Printer
from streamling.transforms.python.processor import PythonProcessor, PythonTransform
from support.python_nodes import Done, processed, run_code

ROWS = Schema((Field("id", INT64), Field("text", STRING), OPERATION_FIELD))
PIPELINE = """\
sources:
  n: {{type: generator, rows: 5, primary_key: id, columns: {{id: id, text: "concat('t', id)"}}}}
transforms:
  t:
    type: python
    from: n
    primary_key: id
    {fields}
sinks:
  o: {{type: blackhole, from: t}}
"""


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    assert not module._loaded, "a test has not closed its transform"
    assert [name for name in sys.modules if name.startswith("streamling_python_")] == []


def batch(*ids: int | None, operation: str = "i") -> pa.RecordBatch:
    texts = [f"t{n}" for n in ids]
    columns = [pa.array(ids, pa.int64()), pa.array(texts), pa.array([operation] * len(ids))]
    return pa.RecordBatch.from_arrays(columns, names=["id", "text", "_gs_op"])


def run(code: str, *ids: int, returns: Schema | None = None, per: str = "row") -> Done:
    return run_code(code, batch(*ids), ROWS, returns, per=per)


def rows(done: Done) -> list[dict[str, Any]]:
    return [row for part in done.batches for row in part.to_pylist()]


def ids(done: Done) -> list[int]:
    return [row["id"] for row in rows(done)]


def planned(directory: Path, fields: str) -> Plan:
    directory.mkdir(exist_ok=True)
    file = directory / "pipeline.yaml"
    file.write_text(PIPELINE.format(fields=fields.replace("\n", "\n    ")))
    return check(file, Settings(), probe=False)


def opened(directory: Path, fields: str) -> PythonTransform:
    plan = planned(directory, fields)
    node = plan.node("t")
    transform = kinds.build(node.spec, Settings())
    assert isinstance(transform, PythonTransform)
    transform.attach(Runtime("app", MemoryState(), Metrics()))
    transform.open(TransformContext("t", "app", "g", plan.node("n").schema, node.schema))
    return transform


def processor(transform: PythonTransform) -> PythonProcessor:
    made = transform.processor()
    assert isinstance(made, PythonProcessor)
    return made


def problem(directory: Path, fields: str) -> UserError:
    with pytest.raises(InvalidPipeline) as caught:
        planned(directory, fields)
    (found,) = caught.value.problems
    assert isinstance(found, UserError)
    return found


# Rows


def test_none_drops_a_row_a_list_explodes_it_and_the_order_stays() -> None:
    code = """
def process(row):
    if row["id"] == 1:
        return None
    if row["id"] == 2:
        return [row, None, {"id": 20}, {}]
    if row["id"] == 3:
        return []
    return {"text": "new", "id": row["id"]}
"""
    done = run(code, 0, 1, 2, 3, 4)
    assert [(row["id"], row["text"]) for row in rows(done)] == [
        (0, "new"), (2, "t2"), (20, None), (None, None), (4, "new")
    ]  # fmt: skip


def test_a_generator_may_yield_the_same_dict_again_and_again() -> None:
    code = """
def process(row):
    for number in range(row["id"]):
        row["id"] = number * 10
        yield row
"""
    assert ids(run(code, 0, 1, 3)) == [0, 0, 10, 20]


def test_a_function_may_return_the_same_dict_for_every_row() -> None:
    code = "out = {}\ndef process(row):\n    out['id'] = row['id']\n    return out"
    assert ids(run(code, 1, 2, 3)) == [1, 2, 3]


def test_a_row_keeps_the_operation_of_its_input_whatever_the_function_returns() -> None:
    code = "def process(row):\n    return [{**row, '_gs_op': 'd'}, {'id': 9}]"
    done = run_code(code, batch(1, operation="u"), ROWS)
    assert [row["_gs_op"] for row in rows(done)] == ["u", "u"]


def test_columns_are_matched_by_name_and_new_keys_are_told() -> None:
    returns = Schema((Field("a", STRING), OPERATION_FIELD, Field("id", DataType("decimal", 9, 2))))
    done = run("def process(row): return {'tier': 1, 'id': row['id'], 5: 6}", 7, returns=returns)
    assert [str(row) for row in rows(done)] == ["{'a': None, '_gs_op': 'i', 'id': Decimal('7.00')}"]
    assert [json.loads(counted.what) for counted in done.counts] == [["new key", "5"], ["new key", "tier"]]
    assert run("def process(row): return row", 7).counts == []
    assert run("def process(row): return {**row, 'text': None}", 7).counts == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(row):\n  return 5", "the function returned a value of type int; a row is a dict, no row is None"),
        ("def f(row):\n  return 'abc'", "the function returned a value of type str"),
        ("def f(row):\n  return [row, 5]", "the function returned in a list a value of type int"),
        ("async def g(): ...\ndef f(row):\n  return g()", "the function is async, and must not be"),
        ("def f(row):\n\n  return row['cents']", "KeyError: 'cents' (line 3 of 'code', p.yaml:3)"),
        ("def f(row):\n  yield row\n  1/0", "ZeroDivisionError: division by zero (line 3 of 'code', p.yaml:3)"),
        ("def f(row):\n  exit(3)", "SystemExit: 3 (line 2 of 'code', p.yaml:2)"),
        ("class P(BaseException): ...\ndef f(row):\n  raise P('panic')", "P: panic (line 3 of 'code', p.yaml:3)"),
        ("import asyncio\ndef f(row):\n  raise asyncio.CancelledError", "CancelledError: no message (line 3"),
        ("def f(row):\n  yield row\n  raise GeneratorExit", "GeneratorExit: no message (line 3"),
        ("def f(row):\n  row['text'] = row\n  return row", "is not a value that JSON can hold"),
        ("import json\ndef f(row):\n  json.loads('{')", "JSONDecodeError: Expecting property name enclosed"),
        ("def f(row):\n  f(row)", "RecursionError: maximum recursion depth exceeded (line 2"),
        ("class E(Exception):\n  def __str__(self): 1/0\ndef f(row):\n  raise E", "E: no message (line 4 of"),
        ("def f(row):\n  return {'id': {}}", "column 'id': {} is not a number"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_an_exception_or_a_wrong_result_is_a_bad_row_and_the_others_count(code: str, message: str) -> None:
    code += "\ndef process(row): return f(row) if row['id'] == 2 else row"
    done = run(code.replace("yield row", "yield {'id': -1}"), 1, 2, 3)
    assert ids(done) == [1, 3]
    (bad,) = done.bad
    assert message in bad.message
    assert bad.row == {"id": 2, "text": "t2", "_gs_op": "i"}
    assert bad.reason in ("python_error", "cast_error")


def test_a_batch_whose_call_ends_with_what_is_no_exception_is_searched() -> None:
    code = (
        "class P(BaseException): ...\ndef process(batch):\n  if 2 in batch['id'].to_pylist(): raise P\n  return batch"
    )
    done = run(code, 1, 2, 3, per="batch")
    assert (ids(done), [bad.row for bad in done.bad]) == ([1, 3], [{"id": 2, "text": "t2", "_gs_op": "i"}])


def test_the_row_of_a_dead_letter_is_the_row_as_it_came() -> None:
    code = "def process(row):\n  row['text'] = 'changed'\n  del row['id']\n  raise ValueError('no')"
    (bad,) = run(code, 2).bad
    assert bad.row == {"id": 2, "text": "t2", "_gs_op": "i"}


def test_many_rows_come_in_several_batches_and_in_order() -> None:
    done = run("def process(row): return None if row['id'] % 3 == 1 else row", *range(20_000))
    assert ids(done) == [n for n in range(20_000) if n % 3 != 1]
    assert len(done.batches) > 1


# Batches


def test_a_function_for_batches_gets_arrow_and_returns_arrow() -> None:
    code = """
import pyarrow as pa
import pyarrow.compute as pc
def process(batch):
    assert isinstance(batch, pa.RecordBatch)
    yield batch.filter(pc.less(batch.column("id"), 2)).drop_columns(["text"])
    yield pa.table({"_gs_op": ["d"], "id": pa.array([9], pa.int8()), "more": [1]})
"""
    done = run(code, 0, 1, 2, per="batch")
    assert [(row["id"], row["text"], row["_gs_op"]) for row in rows(done)] == [
        (0, None, "i"), (1, None, "i"), (9, None, "d")
    ]  # fmt: skip
    assert [json.loads(counted.what) for counted in done.counts] == [["new key", "more"]]
    assert run("def process(batch): return None", 1, per="batch").batches == []


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("5", "the function returned a value of type int, not a pyarrow.RecordBatch or Table"),
        ("batch.drop_columns(['_gs_op'])", "returned no column '_gs_op': pass on that of the input"),
        ("pa.record_batch([[1], [2], ['i']], ['id', 'id', '_gs_op'])", "returned the column 'id' twice"),
        ("pa.record_batch([['x'], ['i']], ['id', '_gs_op'])", "column 'id' does not fit int64"),
        ("pa.record_batch([[1], ['x']], ['id', '_gs_op'])", "_gs_op is 'x'; it must be i, u or d"),
        ("1/0", "ZeroDivisionError: division by zero (line 3 of 'code', p.yaml:3)"),
    ],
)
def test_the_rows_at_fault_in_a_batch_are_found_by_halves(result: str, message: str) -> None:
    code = (
        f"import pyarrow as pa\ndef process(batch):\n  return batch if 3 not in batch['id'].to_pylist() else {result}"
    )
    done = run(code, 0, 1, 2, 3, 4, 5, 6, per="batch")
    assert ids(done) == ([0, 1, 2, 4, 5, 6] if "_gs_op is" not in message else [])
    (bad,) = done.bad
    assert message in bad.message


def test_with_on_error_fail_a_failing_batch_is_not_searched(tmp_path: Path) -> None:
    code = "def process(batch):\n  print('called')\n  raise ValueError('no')"
    transform = opened(tmp_path, f"per: batch\nbatch_size: 3\ncode: {json.dumps(code)}")
    with pytest.raises(PermanentError, match="failed for a batch of 3 rows: ValueError: no \\(line 3 of 'code'"):
        processed(processor(transform), batch(1, 2, 3, 4))
    transform.close()


def test_batches_have_the_size_that_was_asked_for(tmp_path: Path) -> None:
    code = "def process(batch):\n  print(batch.num_rows)\n  return batch"
    transform = opened(tmp_path, f"per: batch\nbatch_size: 3\ncode: {json.dumps(code)}")
    assert [part.num_rows for part in processed(processor(transform), batch(1, 2), batch(3, 4)).batches] == [3, 1]
    transform.close()


# Programs


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def helper(x): ...\ndef process(row): return {'id': 1}\ndef last(row): ...", 1),
        ("def helper(): ...\ndef invoke(row): return {'id': 2}\ndef last(row): ...", 2),
        ("def helper(a, b): ...\ndef any_name(row, limit=5): return {'id': 3}", 3),
        ("each = lambda row: {'id': 4}", 4),
        ("N = 5\nlambda row: {'id': N}", 5),
        ("def f(*rows): return {'id': 6}", 6),
    ],
)
def test_which_function_is_called(code: str, expected: int) -> None:
    assert ids(run(code, 0)) == [expected]


def test_modules_beside_the_pipeline_import_each_other_and_hide_nobody(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("OWN = 'own'")
    (tmp_path / "shaping.py").write_text(
        "import json, parts.inner as inner\nfrom parts import near\n"
        "def shape(row):\n  import late\n  return {'id': inner.ID + late.ID, 'text': json.OWN + near.NAME}"
    )
    (tmp_path / "late.py").write_text("ID = 100")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "inner.py").write_text("from . import near\nfrom .near import NAME\nID = len(NAME)")
    (tmp_path / "parts" / "near.py").write_text("NAME = 'near'")
    transform = opened(tmp_path, "function: shaping:shape")
    for file in tmp_path.rglob("*.py"):
        file.unlink()  # what was read when the pipeline began counts
    assert rows(processed(processor(transform), batch(1))) == [{"id": 104, "text": "ownnear", "_gs_op": "i"}]
    transform.close()
    assert not hasattr(json, "OWN")


def test_a_processor_brings_its_modules_along_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "shaping.py").write_text("from rates import RATE\ndef shape(row):\n  return {'id': row['id'] * RATE}")
    (tmp_path / "rates.py").write_text("RATE = 3")
    transform = opened(tmp_path, "function: shaping:shape")
    (tmp_path / "processor.pickle").write_bytes(pickle.dumps((processor(transform), batch(1, 2))))
    script = (
        "import pickle, sys; from pathlib import Path; from streamling.connector import Epoch\n"
        "processor, batch = pickle.loads(Path('../processor.pickle').read_bytes())\n"
        "(made,) = processor.process(Epoch('e', 1, 'a', 'g', 0, 0, ()), iter([batch])); print(made.to_pydict()['id'])"
    )
    transform.close()
    (tmp_path / "elsewhere").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("[3, 6]\n", "")


def test_an_edited_module_is_loaded_anew_and_changes_the_fingerprint(tmp_path: Path) -> None:
    results, fingerprints = [], set()
    for number in (1, 2):
        (tmp_path / "shaping.py").write_text("from rates import ID\ndef shape(row): return {'id': ID}")
        (tmp_path / "rates.py").write_text(f"ID = {number}")
        fingerprints.add(planned(tmp_path, "function: shaping:shape").fingerprint)
        transform = opened(tmp_path, "function: shaping:shape")
        results += ids(processed(processor(transform), batch(0)))
        transform.close()
    assert (results, len(fingerprints)) == ([1, 2], 2)


def test_modules_of_the_same_name_beside_different_files_are_different_modules(tmp_path: Path) -> None:
    transforms = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shaping.py").write_text(f"def shape(row): return {{'text': '{name}'}}")
        transforms.append(opened(tmp_path / name, "function: shaping:shape"))
    found = [rows(processed(processor(transform), batch(0)))[0]["text"] for transform in transforms]
    for transform in transforms:
        transform.close()
    assert found == ["a", "b"]


def test_an_installed_module_is_used_if_there_is_none_beside_the_pipeline(tmp_path: Path) -> None:
    transform = opened(tmp_path, "function: copy:deepcopy")
    assert ids(processed(processor(transform), batch(1, 2))) == [1, 2]
    transform.close()


def test_it_runs_where_the_rows_are_and_is_repeated_only_if_it_says_so(tmp_path: Path) -> None:
    for declared in (False, True):
        fields = f"deterministic: {str(declared).lower()}\ncode: 'lambda row: row'"
        capabilities = opened_and_closed(tmp_path, fields).capabilities
        assert (capabilities.placement, capabilities.deterministic) == (Placement.ANY, declared)


def opened_and_closed(directory: Path, fields: str) -> PythonTransform:
    transform = opened(directory, fields)
    transform.close()
    return transform


def test_code_that_fails_when_it_is_loaded_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be loaded: NameError: .*line 1 of 'code', pipeline.yaml:9") as caught:
        opened(tmp_path, "code: |\n  x = y\n  def process(row): return row")
    assert caught.value.where is not None
    assert caught.value.where.line == 8
    (tmp_path / "shaping.py").write_text("import sys\nsys.exit()\ndef shape(row): ...")
    with pytest.raises(UserError, match=r"cannot be loaded: SystemExit: no message \(shaping.py, line 2\)"):
        opened(tmp_path, "function: shaping:shape")


# Validation


@pytest.mark.parametrize(
    ("code", "message", "place"),
    [
        ("def process(row):\n  return (", "'(' was never closed", (10, 16)),
        ("def process(row):\nreturn row", "expected an indented block after function definition on line 1", (10, 7)),
        ("async def process(row): ...", "the function 'process' is async, and must not be", (9, 7)),
        ("def process(): ...", "the function 'process' must take one argument", (9, 7)),
        ("\nlambda a, b: a", "the lambda must take one argument", (10, 7)),
        ("def process(row, *, limit): ...", "must take one argument", (9, 7)),
        ("x = 5", "has no function; write `def process(row):`", (9, 7)),
    ],
)
def test_code_that_cannot_be_used_is_found_with_its_place(
    tmp_path: Path, code: str, message: str, place: tuple[int, int]
) -> None:
    found = problem(tmp_path, "code: |\n  " + code.replace("\n", "\n  "))
    assert (found.code, message in found.message) == ("PYTHON_UNUSABLE", True), found.message
    assert found.where is not None
    assert (found.where.line, found.where.column) == place


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nobody:shape", "there is no module 'nobody', neither beside the pipeline, in '"),
        ("json.nobody:shape", "there is no module 'json.nobody'"),
        ("shaping:shade", "shaping.py, line 1: has no function 'shade'"),
        ("shaping.inner:shape", "there is no module 'shaping.inner'"),
        ("shaping:Shape", "has a class 'Shape' where a function is needed"),
        ("shaping:slow", "shaping.py, line 4: the function 'slow' is async"),
        ("shaping:wide", "shaping.py, line 5: the function 'wide' must take one argument"),
        ("broken:shape", "broken.py, line 2: '(' was never closed"),
        ("near_broken:shape", "broken.py, line 2: '(' was never closed"),
        ("copy:deepcopied", "copy.py, line 1: has no function 'deepcopied'"),
    ],
)
def test_a_function_that_is_not_there_is_found_without_running_anything(
    tmp_path: Path, reference: str, message: str
) -> None:
    (tmp_path / "shaping.py").write_text(
        "raise SystemExit\ndef shape(row): ...\nclass Shape: ...\nasync def slow(row): ...\ndef wide(a, b): ...\n"
        "try:\n  from fast import quick\nexcept ImportError:\n  quick = shape\n"
    )
    (tmp_path / "broken.py").write_text("def shape(row):\n  return (")
    (tmp_path / "near_broken.py").write_text("def shape(row):\n  import broken")
    found = problem(tmp_path, f"function: {reference}")
    assert (found.code, message in found.message) == ("PYTHON_UNUSABLE", True), found.message
    assert found.where is not None
    assert (found.where.line, found.where.column) == (8, 15)
    planned(tmp_path, "function: shaping:quick")


# The log


def test_what_is_printed_is_logged_with_the_name_of_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shaping.py").write_text(
        "import sys\nprint('loaded')\ndef shape(row):\n  print(row['id'], end=';', sep='')\n  print('', 'x\\ny')\n"
        "  print('aside', file=sys.stderr)\n  return row"
    )
    caplog.set_level(logging.INFO, logger="streamling")
    transform = opened(tmp_path, "function: shaping:shape")
    processed(processor(transform), batch(*range(200)))
    transform.close()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("streamling.transforms")]
    assert lines[:3] == [f"python transform 't': {text}" for text in ("loaded", "0; x", "y")]
    assert len(lines) == 101
    assert lines[-1] == "python transform 't': (301 more lines were logged)"
    captured = capsys.readouterr()
    assert captured.out == ""
    # A test before this one may have left a handler of the log whose stream is closed, which complains.
    assert captured.err.count("aside\n") == 200


def test_a_line_that_never_ends_takes_neither_time_nor_memory() -> None:
    lines: list[str] = []
    printer = Printer()
    printer.write_to(LineLimit(lambda line, level: lines.append(line)))
    for _ in range(20_000):
        printer.print("." * 1000, end="")
    assert len(printer._partial) == MAX_LENGTH + 1
    printer.print("end\nnext", end="\n")
    assert lines == ["." * MAX_LENGTH + "...", "next"]


def test_names_that_differ_from_row_to_row_are_told_in_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = run("def process(row): return {**row, f'k{row[\"id\"]:04}': 1}", *range(2000))
    assert len(done.counts) == 20
    transform = opened(tmp_path, 'code: "lambda row: row"')
    transform.count({counted.what: counted.count for counted in done.counts if isinstance(counted, Counted)})
    transform.close()
    assert "its function returns 'k0000', 'k0001'" in caplog.text
    assert "'k0009' and others, which the columns do not include" in caplog.text


def test_in_a_worker_printed_lines_and_new_keys_go_to_the_driver_with_the_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "def process(row):\n  print('row', row['id'])\n  return {**row, 'tier': 1, 'id': 'x'}"
    done = run(code, *range(150))
    assert len(done.counts) == 103
    caplog.set_level(logging.INFO, logger="streamling")
    transform = opened(tmp_path, f"code: {json.dumps(code)}")
    counts = {counted.what: counted.count for counted in done.counts if isinstance(counted, Counted)}
    for _ in range(2):
        transform.count(counts)
    transform.close()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("streamling.transforms")]
    assert lines[0] == "python transform 't': row 0"
    assert lines[-1] == "python transform 't': (200 more lines were logged)"
    (warning,) = [line for line in lines if "tier" in line]
    assert warning == (
        "python transform 't': its function returns 'tier', which the columns do not include; "
        "declare new ones in 'schema'"
    )
    (nulled,) = [m for m in transform._metrics.snapshot() if "python_coercion_nulls" in m.name]
    assert nulled.value == 300
