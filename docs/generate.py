"""Writes the generated parts of the documentation: `python docs/generate.py`, or `make docs`.

A page is written by hand, except between two comments:

    <!-- generated: fields sink print -->
    ...
    <!-- end -->

What stands between them is made from the code: field tables from the options models of node kinds, settings from
the settings model, functions from the function table, differences from DataFusion from the list its tests keep, error
codes from their declarations, commands from the command line itself. A node kind without a page gets one. `--check`
changes nothing and fails if a page is out of date; the tests do the same.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from streamling.cli.app import TEXT_TYPE, load_command
from streamling.cli.commands import COMMANDS
from streamling.connector.kinds import built_in_kinds, kinds
from streamling.errors import CONDITIONS
from streamling.plan.sql.functions import FAMILIES
from streamling.spec.field_words import ANY, default_of, type_of
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.settings import Settings
from streamling.spec.settings.environment_only import RuntimeLimits, variable_of
from streamling.telemetry.catalog import METRICS
from streamling.telemetry.metrics import MetricKind

DOCS = Path(__file__).resolve().parent

# Accepted in every node so that pipelines need no change later; nothing acts on them yet,
WITHOUT_EFFECT = ("parallelism",)
# except in these kinds.
WIDE = ((Role.SOURCE, "file"), (Role.SOURCE, "kafka"), (Role.TRANSFORM, "handler"), (Role.SINK, "webhook"))

# The settings that do something today, in the order of the page.
SETTINGS = {
    "application": ("application_id", "pipeline_definition_location", "log_format", "enforce_primary_keys"),
    "run": ("job_mode", "num_records_before_stop", "drain_policy"),
    "timing": ("record_batch_interval_ms", "checkpoint_interval_sec"),
    "state": (
        "state_backend.backend_type",
        "state_backend.sqlite.database_path",
        "state_backend.sqlite.state_table_name",
        "state_backend.postgres.host",
        "state_backend.postgres.port",
        "state_backend.postgres.db",
        "state_backend.postgres.user",
        "state_backend.postgres.password",
        "state_backend.postgres.sslmode",
        "state_backend.postgres.state_schema_name",
        "state_backend.postgres.state_table_name",
        "state_backend.postgres.acquire_timeout_secs",
    ),
    "tables": (
        "dynamic_table_backend.max_batch_size",
        *(
            f"dynamic_table_backend.postgres.{name}"
            for name in (
                *("host", "port", "db", "user", "password", "sslmode"),
                *("dt_schema_name", "cache_enabled", "cache_refresh_debounce_ms"),
            )
        ),
    ),
    "clickhouse": (
        "clickhouse_source.url",
        "clickhouse_source.user",
        "clickhouse_source.password",
        "clickhouse_source.database",
        "clickhouse_source.page_size",
        "clickhouse_source.sort_key_range",
    ),
    "epoch": (
        "epoch.driver_rows",
        "epoch.rows",
        "epoch.collect_rows",
        "epoch.bytes",
        "epoch.takeover_ms",
        "epoch.max_same_rejects",
    ),
    "metrics": tuple(
        f"open_telemetry_metrics.{name}"
        for name in (
            *("ingestion_endpoint", "endpoint_protocol", "batch_interval_secs"),
            *("global_tags", "metric_deny_list", "traces_endpoint"),
        )
    ),
    "kafka": tuple(
        f"kafka_source.{name}"
        for name in (
            "brokers",
            "security_protocol",
            "sasl_mechanism",
            "sasl_username",
            "sasl_password",
            "schema_registry_url",
            "schema_registry_username",
            "schema_registry_password",
            "client_id",
            "consumer_group_id",
            "session_timeout_ms",
            "lag_report_interval_ms",
        )
    ),
    "postgres": tuple(
        f"postgres_sink.{name}"
        for name in (
            "host",
            "port",
            "user",
            "pass",
            "db",
            "sslmode",
            "batch_size",
            "batch_flush_interval",
            "statement_timeout_secs",
            "pool_acquire_timeout_secs",
            "pool_idle_timeout_secs",
            "pool_max_lifetime_secs",
        )
    ),
    "http": (
        "external_http_handler.trigger_max_count",
        "external_http_handler.operator_timeout_sec",
        "external_http_handler.buffer_size",
        "record_batch_size",
        "http_secret_header",
        "http_secret_value",
    ),
    "admin": (
        "live_data_inspect_enabled",
        "admin_api_enabled",
        "admin_api_port",
        "live_data_inspect.records_per_topology_node",
        "live_data_inspect.refresh_in_secs",
        "progress_deadline_secs",
        "progress_exit_secs",
        "preview_tolerant_mode",
    ),
    "print": ("print_sink.sample_every", "print_sink.num_records_before_stop"),
}
LIMITS = ("shutdown_budget_secs", "backpressure_event_threshold_ms", "log_filter")

_BLOCK = re.compile(r"(<!-- generated: (?P<what>[^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    stale = [path for path, text in pages() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is out of date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages():
        if path in stale:
            path.write_text(text)
            print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


def pages() -> Iterator[tuple[Path, str]]:
    """Every page that has a generated part, as it should be."""
    for role, type_ in sorted(built_in_kinds()):
        path = node_page(role, type_)
        if not path.exists():
            yield path, generated(_new_page(role, type_))
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if _BLOCK.search(text):
            yield path, generated(text)


def node_page(role: Role, type_: str) -> Path:
    """Where a node kind is described. A name that a source and a sink share gives two pages."""
    shared = sum(1 for _, other in built_in_kinds() if other == type_) > 1
    return DOCS / "nodes" / (f"{type_}-{role}.md" if shared else f"{type_}.md")


def generated(text: str) -> str:
    """The text with every generated block made anew."""
    return _BLOCK.sub(lambda match: match[1] + _content(match["what"].split()) + match[3], text)


def _content(words: list[str]) -> str:
    match words:
        case ["about", role, type_]:
            lines = _about(kinds()[Role(role), type_])
        case ["fields", role, type_]:
            lines = _fields(Role(role), type_)
        case ["settings", group]:
            lines = _settings(SETTINGS[group])
        case ["limits"]:
            lines = _limits()
        case ["functions"]:
            lines = _functions()
        case ["differences"]:
            lines = _differences()
        case ["commands"]:
            lines = _commands()
        case ["metrics"]:
            lines = _metrics()
        case ["errors"]:
            lines = _table(
                ("code", "what it means", "what to do"),
                [(f"`{c.code}`", c.explanation, c.remedy) for _, c in sorted(CONDITIONS.items())],
            )
        case _:
            raise SystemExit(f"docs/generate.py knows no block '{' '.join(words)}'")
    return "\n" + "\n".join(lines) + "\n\n"


def _new_page(role: Role, type_: str) -> str:
    return (
        f"# {type_} ({role})\n\n"
        f"<!-- generated: about {role} {type_} -->\n<!-- end -->\n\n"
        f"## Fields\n\n<!-- generated: fields {role} {type_} -->\n<!-- end -->\n"
    )


# Node kinds


def _about(model: type[NodeOptions]) -> list[str]:
    """The first sentence of the module, what the options say, and the promise of delivery."""
    module = inspect.getdoc(sys.modules[model.__module__]) or ""
    paragraphs = [" ".join(part.split()) for part in module.split("\n\n")]
    delivery = [p for p in paragraphs if p.startswith("Delivery:")]
    summary = " ".join((inspect.getdoc(model) or "").split())
    about = [paragraphs[0].partition(": ")[2][:1].upper() + paragraphs[0].partition(": ")[2][1:], "", summary]
    return (
        [*about, "", *(f"**Delivery:** {p.removeprefix('Delivery:').strip()}" for p in delivery)] if delivery else about
    )


def _fields(role: Role, type_: str) -> list[str]:
    model, idle = kinds()[role, type_], _without_effect(role, type_)
    named = ", ".join(f"`{name}`" for name in idle if name in model.model_fields)
    note = f"Accepted, without effect yet: {named}."
    return [*_field_table(model, idle), *_inner_maps(model, idle), "", note]


def _without_effect(role: Role, type_: str) -> tuple[str, ...]:
    working = {"parallelism"} if (role, type_) in WIDE else set()
    return tuple(name for name in WITHOUT_EFFECT if name not in working)


def _field_table(model: type[BaseModel], hidden: Sequence[str] = ()) -> list[str]:
    rows = [
        (f"`{field.alias or name}`", type_of(field), default_of(field), _described(field))
        for name, field in sorted(model.model_fields.items(), key=lambda item: not item[1].is_required())
        if name not in hidden
    ]
    return _table(("field", "type", "default", "meaning"), rows)


def _inner_maps(model: type[BaseModel], hidden: Sequence[str] = (), outer: str = "") -> Iterator[str]:
    """A table for each map inside the fields of a model."""
    for name, field in model.model_fields.items():
        found = [] if name in hidden else list(_maps(field.annotation))
        for suffix, inner in found:
            path = f"{outer}{field.alias or name}{suffix}"
            title = f"`{path}`" if len(found) == 1 else f"`{path}` with {_tag(inner)}"
            summary = " ".join((inspect.getdoc(inner) or "").split())
            yield from ["", f"### {title}", "", summary, "", *_field_table(inner)]
            yield from _inner_maps(inner, outer=f"{path}.")


def _tag(model: type[BaseModel]) -> str:
    """The field that says which of several maps this is, and its value."""
    name = next(name for name in ("type", "source_type") if name in model.model_fields)
    return f"{name if name == 'type' else f'`{name}`'} {type_of(model.model_fields[name])}"


def _maps(annotation: Any, suffix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """The models in a type, each with what stands between the field's name and the fields of the model."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield suffix, annotation
    suffix += {tuple: "[]", dict: ".<name>"}.get(get_origin(annotation), "")
    for argument in get_args(annotation):
        yield from _maps(argument, suffix)


def _described(field: FieldInfo) -> str:
    if not field.description or ANY in type_of(field):
        raise SystemExit(f"a field has no description, or a type without a name: {field!r}")
    return field.description


# Settings


def _settings(names: tuple[str, ...]) -> list[str]:
    rows = []
    for name in names:
        field = _setting(Settings, name.split("."))
        rows.append((f"`{name}`", type_of(field), default_of(field), _described(field)))
    return _table(("key", "type", "default", "meaning"), rows)


def _setting(model: type[BaseModel], path: list[str]) -> FieldInfo:
    fields = model.model_fields
    field = fields.get(path[0]) or next(field for field in fields.values() if field.alias == path[0])
    if len(path) == 1:
        return field
    if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
        raise SystemExit(f"{path[0]} is not a block of settings")
    return _setting(field.annotation, path[1:])


def _limits() -> list[str]:
    fields = RuntimeLimits.model_fields
    rows = [
        (f"`{variable_of(name)}`", type_of(fields[name]), default_of(fields[name]), _described(fields[name]))
        for name in LIMITS
    ]
    return _table(("variable", "type", "default", "meaning"), rows)


# Functions


def _functions() -> list[str]:
    lines: list[str] = []
    for title, family in FAMILIES.items():
        note = " ".join((inspect.getdoc(family) or "").split())
        lines += [f"### {title}", "", note, "", *_table(("function", "also as"), _family(family.FUNCTIONS)), ""]
    return lines[:-1]


def _family(functions: dict[str, Any]) -> list[tuple[str, str]]:
    """One row per usage; other names of the same function beside it."""
    rows: dict[str, list[str]] = {}
    for name, function in functions.items():
        others = rows.setdefault(function.usage, [])
        if name != function.usage.partition("(")[0]:
            others.append(f"`{name}`")
    return [(f"`{usage}`", ", ".join(others)) for usage, others in sorted(rows.items())]


def _differences() -> list[str]:
    """From the file that the comparison with the other engine is checked against."""
    entries = YAML(typ="safe").load(DOCS.parent / "tests" / "unit" / "sql" / "differences.yaml")
    rows = [(entry["reason"], ", ".join(f"`{sql}`" for sql in entry["expressions"][:3])) for entry in entries]
    return _table(("difference", "for example"), rows)


# Commands


def _metrics() -> list[str]:
    kinds_ = {MetricKind.COUNT: "counter", MetricKind.GAUGE: "gauge", MetricKind.LATENCY: "histogram"}
    rows = []
    for info in METRICS:
        labels = ", ".join(f"`{label}`" for label in info.labels)
        kind = f"{kinds_[info.kind]}, {info.unit}" if info.unit else kinds_[info.kind]
        rows.append((f"`{info.name}`", kind, info.of, labels, info.help))
    return _table(("metric", "kind", "of", "labels", "meaning"), rows)


def _commands() -> list[str]:
    lines: list[str] = []
    for name in COMMANDS:
        command = load_command(name)
        inner = getattr(command, "commands", None)
        lines += [f"### {name}", "", command.help, ""]
        for path, one in {f"{name} {n}": c for n, c in inner.items()}.items() if inner else [(name, command)]:
            lines += _command(path, one, with_help=inner is not None)
    return lines[:-1]


def _command(path: str, command: Any, *, with_help: bool) -> Iterator[str]:
    """Its usage, arguments and options, and its examples."""
    context = command.make_context(f"streamling {path}", [], resilient_parsing=True)
    usage = context.get_usage().removeprefix("Usage: ")
    yield from [f"`{usage}`" + (f": {command.help[0].lower()}{command.help[1:]}" if with_help else ""), ""]
    records = [p.get_help_record(context) for p in command.params]
    rows = [(f"`{TEXT_TYPE.sub('', name)}`", " ".join(text.split())) for name, text in filter(None, records)]
    yield from [*_table(("argument", "meaning"), rows), ""]
    # What stands behind an example is a comment.
    examples = [re.sub(r"(?<=\S)( {2,})(?=\S)", r"\1# ", line) for line in command.epilog.strip().splitlines()]
    yield from ["```sh", *examples, "```", ""]


# Markdown


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
