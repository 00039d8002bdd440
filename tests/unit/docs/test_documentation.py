"""The documentation is part of the product: its pipelines validate, its queries compile, its tables match the code."""

from __future__ import annotations

import importlib.util
import re
from contextlib import chdir
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streamling.connector.kinds import built_in_kinds
from streamling.engine.preparation import check
from streamling.errors import NOT_RUNNABLE, SCHEMA_UNKNOWN
from streamling.plan.planned_node import PlannedNode
from streamling.plan.sql import compile_query, parse
from streamling.plugin.loading import load_plugins
from streamling.plugin.registration import Provenance, forget
from streamling.spec.settings import Settings, load_settings
from streamling.spec.settings.blocks import Plugin
from streamling.spec.yaml import MapNode, compose
from support.doc_pages import FENCE, PAGES, ROOT, Block, blocks, blocks_of, write_modules

# Those with servers are run as a whole by other tests: their columns are in a registry or a database.
_WITH_SERVERS = (
    "backfill_then_live.yaml",
    "clickhouse_to_files.yaml",
    "orders_to_postgres.yaml",
    "orders_to_topic.yaml",
    "revenue.yaml",
)
PIPELINES = sorted(
    p
    for p in (ROOT / "examples").rglob("*.yaml")
    if not p.name.endswith(".config.yaml") and p.name not in _WITH_SERVERS
)
CONFIGURATIONS = sorted((ROOT / "examples").glob("*.config.yaml"))
_LINK = re.compile(r"\]\((?P<target>[^)#\s]+)?(?:#(?P<heading>[^)\s]+))?\)")


def _is_pipeline(block: Block) -> bool:
    tree = compose(block.text, str(block))
    return isinstance(tree, MapNode) and tree.entry("sources") is not None


YAML = blocks("yaml")


def plugins_of(page: Path, directory: Path) -> Settings:
    """Settings with the plugins and connectors that a page shows, written to files."""
    write_modules(page, directory)
    return Settings(plugin=Plugin(path=str(directory)))


def cautions(file: Path, settings: Settings) -> list[str]:
    """What a check of the file alone says, but for what only a connector or another system can settle."""
    found = check(file, settings, probe=False).cautions
    return [c.message for c in found if c.condition not in (NOT_RUNNABLE, SCHEMA_UNKNOWN)]


@pytest.mark.parametrize("block", [b for b in YAML if _is_pipeline(b)], ids=str)
def test_a_pipeline_in_the_documentation_validates_without_warnings(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(block.text)
    assert cautions(file, plugins_of(block.page, tmp_path)) == []


@pytest.mark.parametrize("block", [b for b in YAML if not _is_pipeline(b)], ids=str)
def test_settings_in_the_documentation_load_without_warnings(block: Block, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(block.text)
    assert load_settings(config=None, environ={}, cwd=tmp_path).warnings == ()


@pytest.mark.parametrize("file", PIPELINES, ids=lambda p: p.name)
def test_an_example_validates_without_warnings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    settings = Settings(plugin=Plugin(path="examples/plugins"))
    assert [caution.message for caution in check(file, settings, probe=True).cautions] == []


def test_the_tests_in_the_guide_to_plugins_pass() -> None:
    load_plugins(Settings())
    names: dict[str, Any] = {}
    try:
        for block in blocks_of(ROOT / "docs" / "plugins.md"):
            if block.language == "python":
                exec(compile(block.text, str(block), "exec"), names)
    finally:
        forget(Provenance.CODE)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda p: p.name)
def test_the_settings_of_an_example_load_without_warnings(file: Path) -> None:
    assert load_settings(config=file.name, environ={}, cwd=file.parent).warnings == ()


@pytest.fixture(scope="module")
def orders() -> PlannedNode:
    with chdir(ROOT):
        settings = Settings(plugin=Plugin(path="examples/plugins"))
        return check(Path("examples/demo.yaml"), settings, probe=True).node("web_orders")


@pytest.mark.parametrize("block", blocks("sql"), ids=str)
def test_a_query_in_the_documentation_compiles_over_the_orders_of_the_demo(block: Block, orders: PlannedNode) -> None:
    query = compile_query(parse(block.text, node="example"), {"orders": orders.schema}, {"orders": orders.view})
    assert query.schema.names


def test_the_readme_shows_examples_as_they_are() -> None:
    shown = [b.text for b in YAML if b.page.name == "README.md"]
    assert shown == [(ROOT / "examples" / name).read_text() for name in ("quickstart.yaml", "samples.yaml")]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generate: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in generate.pages() if _text(path) != text]
    assert stale == [], "run `make docs`"


def test_every_kind_of_node_has_a_page_with_an_example(generate: ModuleType) -> None:
    lacking = [
        f"{role} {type_}"
        for role, type_ in sorted(built_in_kinds())
        if not any(b.language == "yaml" and type_ in b.text for b in blocks_of(generate.node_page(role, type_)))
    ]
    assert lacking == [], "add a yaml block that uses the kind to its page in docs/nodes"


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {match[0]}"
        for page in PAGES
        for match in _LINK.finditer(FENCE.sub("", page.read_text()))
        if not _reachable(page, match["target"] or page.name, match["heading"])
    ]
    assert broken == []


def test_commands_of_make_in_the_documentation_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        command for page in PAGES for command in re.findall(r"(?:^|`)make ([a-z]+)\b", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    assert named <= targets


def test_continuous_integration_runs_what_the_readme_says() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _reachable(page: Path, target: str, heading: str | None) -> bool:
    if "://" in target:
        return True
    file = page.parent / target
    if not file.exists():
        return False
    return heading is None or heading in {_anchor(line) for line in file.read_text().splitlines() if line[:1] == "#"}


def _anchor(line: str) -> str:
    return re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")


def test_modules_and_functions_that_the_architecture_names_exist() -> None:
    """`module.py` followed by `function`, or by `Class.method`."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    files = [
        path.relative_to(ROOT).as_posix() for place in ("src", "tests", "docs") for path in (ROOT / place).rglob("*.py")
    ]
    wrong = []
    for name in set(re.findall(r"`([\w/]+\.py)`", text)):
        if not any(file == name or file.endswith(f"/{name}") for file in files):
            wrong.append(name)
    for name, function in set(re.findall(r"`([\w/]+\.py)` `([\w.]+)`", text)):
        sources = [(ROOT / file).read_text() for file in files if file.endswith(f"/{name}")]
        if not any(all(re.search(rf"\b{part}\b", source) for part in function.split(".")) for source in sources):
            wrong.append(f"{name} {function}")
    assert wrong == []
