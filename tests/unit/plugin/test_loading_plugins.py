"""Where plugins come from, and what is said when one does not load."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import streamling
from streamling.cli.main import main
from streamling.errors import UserError
from streamling.plugin import SinkPlugin, loading, register_sink
from streamling.plugin.catalog import plugins
from streamling.plugin.loading import load_plugins
from streamling.plugin.registration import Provenance, forget
from support.plugin_files import HEAD, NUMBERS, checked, problems, settings, write_plugin

PIPELINE = """\
sources:
  n: {type: numbers, primary_key: id}
sinks:
  o: {type: blackhole, from: n}
"""
SAMPLES = """\
sources:
  r: {type: basic_plugin.random_source, max_rows: 5, primary_key: num_field}
  p: {type: basic_plugin.partitioned_source, rows: 5, preferred_partitions: 3, primary_key: id}
transforms:
  f: {type: basic_plugin.filter_transform, from: r, num_field: 7}
  t: {type: basic_plugin.partitioned_transform, from: p, parallelism: 2}
sinks:
  a: {type: print_sink, from: f, mode: row}
  b: {type: basic_plugin.partitioned_file_sink, from: t, output_dir: out}
"""


def refusal(path: Path) -> UserError:
    with pytest.raises(UserError) as found:
        load_plugins(settings(path))
    assert found.value.code == "PLUGIN_NOT_LOADED"
    return found.value


def origins(path: Path | None = None) -> dict[str, str]:
    return {row.id: row.source for row in plugins(settings(path))}


def test_importing_the_plugin_package_loads_neither_spark_nor_arrow() -> None:
    script = (
        "import sys; from streamling.plugin.loading import load_samples; load_samples(); "
        "print(sorted({'pyspark', 'pyarrow', 'py4j', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    source = str(Path(streamling.__path__[0]).parent)
    result = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": source}, capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr


def test_the_samples_are_there_without_a_path(tmp_path: Path) -> None:
    plan = checked(tmp_path, SAMPLES)
    assert [c.message for c in plan.cautions] == []
    assert {n.ref: n.width for n in plan.nodes} == {"r": 1, "p": 3, "f": 1, "t": 2, "a": 1, "b": 2}


def test_a_file_a_package_and_a_directory_of_both_are_loaded(tmp_path: Path) -> None:
    file = write_plugin(tmp_path / "one", NUMBERS)
    assert origins(file)["numbers"] == "path"
    package = write_plugin(
        tmp_path / "two" / "pack", "from streamling_plugin_pack.inner import x\n" + NUMBERS, "__init__.py"
    )
    (package.parent / "inner.py").write_text("x = 1\n")
    assert origins(package.parent)["numbers"] == "path"
    write_plugin(tmp_path / "two", NUMBERS.replace("numbers", "others"), "others.py")
    write_plugin(tmp_path / "two", "raise RuntimeError('hidden files are no plugins')", "_hidden.py")
    assert {"numbers", "others"} <= set(origins(tmp_path / "two"))


def test_a_directory_is_loaded_in_order_of_name(tmp_path: Path) -> None:
    write_plugin(tmp_path, "import builtins\nbuiltins.loaded_plugins = ['b']", "b.py")
    write_plugin(tmp_path, "import builtins\nbuiltins.loaded_plugins += ['c']", "c.py")
    load_plugins(settings(tmp_path))
    assert sys.modules["builtins"].__dict__.pop("loaded_plugins") == ["b", "c"]


def test_what_was_loaded_by_path_is_forgotten_when_another_path_is_loaded(tmp_path: Path) -> None:
    write_plugin(tmp_path / "a", NUMBERS)
    write_plugin(tmp_path / "b", NUMBERS.replace("numbers", "others"))
    assert "numbers" in origins(tmp_path / "a")
    assert "numbers" not in origins(tmp_path / "b")
    assert "others" not in origins()


def test_a_plugin_loaded_by_path_is_used_instead_of_a_sample_of_its_id(tmp_path: Path) -> None:
    write_plugin(tmp_path, NUMBERS.replace("numbers", "basic_plugin.random_source"))
    assert origins(tmp_path)["basic_plugin.random_source"] == "path"
    assert origins()["basic_plugin.random_source"] == "built-in sample"


def test_a_plugin_registered_by_a_program_is_used_instead_of_a_sample_of_its_id() -> None:
    load_plugins(settings())
    try:
        register_sink("print_sink", type("Own", (SinkPlugin,), {"process_batch": print}))
        assert origins()["print_sink"] == "code"
    finally:
        forget(Provenance.CODE)
    assert origins()["print_sink"] == "built-in sample"


def test_an_id_may_be_given_as_namespace_and_name_and_by_call_or_decorator(tmp_path: Path) -> None:
    text = """
    class Sink(SinkPlugin):
        def process_batch(self, batch): pass
    register_sink("queue", Sink)
    register_sink("acme", "queue", Sink, input_buffer=3)
    @register_sink("acme", "other")
    class Other(Sink): pass
    """
    assert {"queue", "acme.queue", "acme.other"} <= set(origins(write_plugin(tmp_path, text)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0", "ZeroDivisionError: division by zero (own.py, line"),
        ("def (", "SyntaxError: "),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (NUMBERS + NUMBERS, "two plugins have the id 'numbers'"),
        (NUMBERS.replace("numbers", "kafka"), "source plugin 'kafka': the id belongs to a built-in kind of node"),
        ("register_sink('q', 5)", "sink plugin 'q': a class is expected, not 5"),
        ("@register_sink('q')\nclass Q: pass", "the class Q has no method process_batch"),
        ("@register_source('q')\nclass Q: pass", "no method output_schema and no method generate_batch"),
        ("@register_sink('.q')\nclass Q(SinkPlugin): process_batch = print", "'name' or 'namespace.name'"),
        ("@register_sink('q', input_buffer=-1)\nclass Q:\n  process_batch = print", "0 batches or more"),
        (
            "@register_sink('q', partitioned=True)\nclass Q(SinkPlugin):\n  process_batch = print",
            "a partitioned plugin needs a class method describe",
        ),
        ("register_udf('f', [5], pa.int64(), print)", "function 'f': its types must be Arrow types"),
        ("register_udf('f g', [], pa.int64(), print)", "the name must consist of letters, digits and '_'"),
        ("for _ in range(2): register_udf('f', [], pa.int64(), print)", "two functions have the name 'f'"),
    ],
)
def test_a_broken_plugin_is_an_error_of_the_user_that_names_file_and_cause(
    tmp_path: Path, text: str, said: str
) -> None:
    file = write_plugin(tmp_path, "")
    file.write_text(HEAD + text + "\n")
    error = refusal(tmp_path)
    assert error.message.startswith(f"plugin '{file}' cannot be loaded: ")
    assert said in error.message
    assert "\n" not in error.message


def test_two_plugins_of_different_kinds_and_files_cannot_share_an_id(tmp_path: Path) -> None:
    first = write_plugin(tmp_path, NUMBERS, "a.py")
    second = write_plugin(tmp_path, "@register_sink('numbers')\nclass S(SinkPlugin):\n  process_batch = print", "b.py")
    message = refusal(tmp_path).message
    assert f"'numbers': one from {first}, one from {second}" in message


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert "gone', which does not exist" in refusal(tmp_path / "gone").message


@pytest.mark.parametrize("suffix", ["so", "dylib", "dll"])
def test_a_native_library_is_refused(tmp_path: Path, suffix: str) -> None:
    library = tmp_path / f"lib.{suffix}"
    library.write_bytes(b"\x7fELF")
    assert "is a native library" in refusal(library).message
    assert "is a native library" in refusal(tmp_path).message


def test_a_file_that_is_no_python_is_refused_but_passed_over_in_a_directory(tmp_path: Path) -> None:
    text = tmp_path / "readme.txt"
    text.write_text("hello")
    assert "neither a Python file nor a package" in refusal(text).message
    assert load_plugins(settings(tmp_path)) == []


def test_a_plugin_that_registers_nothing_is_a_warning(tmp_path: Path) -> None:
    file = write_plugin(tmp_path, "x = 1")
    assert [c.message for c in load_plugins(settings(tmp_path))] == [f"plugin '{file}' registers nothing"]


def test_installed_packages_offer_plugins_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offering.py").write_text(
        HEAD + "def register():\n" + NUMBERS.replace("numbers", "of_entry").replace("\n", "\n    ")
    )
    monkeypatch.syspath_prepend(tmp_path)
    points = EntryPoints([EntryPoint("numbers", "offering:register", loading.GROUP)])
    monkeypatch.setattr(loading, "entry_points", lambda group: points)
    assert origins()["of_entry"] == "entry point"
    assert origins()["of_entry"] == "entry point"  # a second time nothing is registered twice
    forget(Provenance.ENTRY_POINT)


def test_a_broken_entry_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("lost", "no_such_package", loading.GROUP)])
    monkeypatch.setattr(loading, "entry_points", lambda group: points)
    with pytest.raises(UserError, match=r"plugin of the entry point 'lost = no_such_package' cannot be loaded"):
        load_plugins(settings())


def test_an_id_nobody_has_is_not_available_and_the_others_are_listed(tmp_path: Path) -> None:
    write_plugin(tmp_path, NUMBERS)
    (problem,) = problems(tmp_path, PIPELINE.replace("type: numbers", "type: numbrs"))
    assert problem.code == "KIND_NOT_AVAILABLE"
    assert "source type 'numbrs' is not available; known source types: clickhouse," in problem.message
    assert problem.message.endswith("basic_plugin.partitioned_source, basic_plugin.random_source, numbers")
    assert problem.hint == "did you mean 'numbers'?"


def test_the_list_tells_id_kind_place_and_what_a_plugin_does(tmp_path: Path) -> None:
    file = write_plugin(
        tmp_path, NUMBERS + "def double(x):\n  'Twice.'\nregister_udf('double', [pa.int64()], pa.int64(), double)"
    )
    rows = plugins(settings(tmp_path))
    own = [row.as_json() for row in rows if row.source == "path"]
    assert own == [
        {
            "id": "numbers",
            "kind": "source",
            "place": str(file),
            "source": "path",
            "doc": "Rows that are numbered.",
            "partitioned": False,
            "sample": False,
        },
        {
            "id": "double",
            "kind": "function",
            "place": str(file),
            "source": "path",
            "doc": "Twice.",
            "partitioned": False,
            "sample": False,
        },
    ]
    assert all(row.doc for row in rows)


def test_the_command_lists_what_plugins_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_plugin(tmp_path, NUMBERS + "register_udf('double', [pa.int64()], pa.int64(), print)")
    monkeypatch.setenv("STREAMLING__PLUGIN__PATH", str(file))
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["plugin", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["sources:", "transforms:", "sinks:", "functions:"]
    assert any("numbers " in line and f"Rows that are numbered. (from {file})" in line for line in lines)
    assert any("print_sink " in line and line.endswith("(a sample)") for line in lines)
    monkeypatch.setenv("STREAMLING__PLUGIN__PATH", str(tmp_path / "gone"))
    assert main(["plugin", "list"]) == 1
    assert "[PLUGIN_NOT_LOADED]" in capsys.readouterr().err
