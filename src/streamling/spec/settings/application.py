"""The application settings: connections, tuning, identity, secrets. Everything that is not the pipeline.

Three layers, key by key at every depth: the defaults of the models, a file, the environment
(`STREAMLING__BLOCK__KEY`). Names of keys ignore case; unknown ones are reported, never refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from streamling.errors import SETTING_INVALID, InvalidPipeline, UserError
from streamling.spec.coercion import Bool, Int
from streamling.spec.faults import faults
from streamling.spec.secret import Secret
from streamling.spec.settings.blocks import (
    Block,
    ClickHouseSink,
    ClickHouseSource,
    DrainPolicy,
    DynamicTableBackend,
    Epoch,
    ExternalHttpHandler,
    KafkaSink,
    KafkaSource,
    LiveDataInspect,
    OpenTelemetryMetrics,
    Plugin,
    PostgresConnection,
    PostgresSink,
    PrintSink,
    StateBackend,
    WasmScript,
)
from streamling.spec.settings.environment_only import RuntimeLimits, limit_values, variable_of
from streamling.spec.settings.layers import environment_values, file_values, find_config
from streamling.spec.settings.masking import masked
from streamling.spec.settings.names import SettingTree, connection_name


class Settings(Block):
    """All settings, frozen. Blocks and keys have the names they have in a file."""

    application_id: str = Field(default="local_app_v1", min_length=1, description="Identity of this application.")
    log_format: str = Field(default="text", description="`json` for one object per line; anything else is text.")
    pipeline_definition_location: str = Field(
        default="./pipeline.yaml", description="Pipeline file when the command line names none."
    )
    record_batch_interval_ms: Int = Field(default=100, ge=0, description="Longest time a source batch stays open.")
    record_batch_size: Int = Field(default=1000, ge=1, description="Most rows in one source batch.")
    internal_buffer_size: Int = Field(default=10, ge=1, description="Batches in flight between two operators.")
    num_records_before_stop: Int | None = Field(
        default=None, ge=0, description="Stop once one sink has written that many rows."
    )
    checkpoint_interval_sec: Int = Field(default=5, ge=0, description="Pause between checkpoint epochs.")
    enforce_primary_keys: Bool = Field(default=False, description="Missing primary keys are errors.")
    live_data_inspect_enabled: Bool = Field(default=False, description="Sample rows and start the admin API.")
    admin_api_port: Int = Field(default=3000, ge=0, le=65535, description="Admin API port; 0 means any free port.")
    job_mode: Bool = Field(default=False, description="End after all bounded work.")
    drain_policy: DrainPolicy = Field(default=DrainPolicy.AUTO, description="What happens to rows in flight at a stop.")
    preview_tolerant_mode: Bool = Field(
        default=False, description="After a fatal error keep serving the admin API instead of exiting."
    )
    http_secret_header: dict[str, Secret] = Field(default_factory=dict, description="Header names by secret.")
    http_secret_value: dict[str, Secret] = Field(default_factory=dict, description="Header values by secret.")
    postgres_sink_connections: dict[str, PostgresConnection] = Field(
        default_factory=dict, description="Connections of single sinks; what they leave out is that of `postgres_sink`."
    )
    live_data_inspect: LiveDataInspect = Field(default_factory=LiveDataInspect)
    state_backend: StateBackend = Field(default_factory=StateBackend)
    dynamic_table_backend: DynamicTableBackend = Field(default_factory=DynamicTableBackend)
    external_http_handler: ExternalHttpHandler = Field(default_factory=ExternalHttpHandler)
    wasm_script: WasmScript = Field(default_factory=WasmScript)
    plugin: Plugin = Field(default_factory=Plugin)
    kafka_source: KafkaSource = Field(default_factory=KafkaSource)
    kafka_sink: KafkaSink = Field(default_factory=KafkaSink)
    clickhouse_source: ClickHouseSource = Field(default_factory=ClickHouseSource)
    clickhouse_sink: ClickHouseSink = Field(default_factory=ClickHouseSink)
    postgres_sink: PostgresSink = Field(default_factory=PostgresSink)
    print_sink: PrintSink = Field(default_factory=PrintSink)
    open_telemetry_metrics: OpenTelemetryMetrics = Field(default_factory=OpenTelemetryMetrics)
    epoch: Epoch = Field(default_factory=Epoch)
    spark: dict[str, str] = Field(default_factory=dict, description="Spark's own settings, by their full names.")
    runtime: RuntimeLimits = Field(default_factory=RuntimeLimits, description="What only the environment gives.")

    def postgres_connection(self, sink: str) -> PostgresConnection:
        """The connection of a Postgres sink: its own where one is given, else that of `postgres_sink`."""
        return self.postgres_sink_connections.get(connection_name(sink), self.postgres_sink)

    def masked(self) -> dict[str, Any]:
        """All settings as plain values for logs, without secrets."""
        return masked(self)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, what was odd about them, and the file they were read from, if any."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    file: Path | None = None


def load_settings(*, config: str | None, environ: Mapping[str, str], cwd: Path) -> LoadedSettings:
    """The settings of this process. Raises UserError CONFIG_FILE, or InvalidPipeline with one SETTING_INVALID per key.

    `config` is the name the user gave, None when they gave none.
    """
    file = find_config(config, cwd)
    tree = SettingTree(Settings)
    if file is not None:
        tree.put_all(file_values(file, str(file.relative_to(cwd) if file.is_relative_to(cwd) else file)))
    tree.put_all(environment_values(environ))
    problems = list(tree.problems)
    limits = _limits(environ, problems)
    # The wait for a connection must leave room to stop within the budget.
    tree.suggest(
        ("state_backend", "postgres", "acquire_timeout_secs"), max(1, min(5, limits.shutdown_budget_secs // 2))
    )
    tree.inherit(("postgres_sink",), ("postgres_sink_connections",), PostgresConnection)
    try:
        settings = Settings.model_validate({**tree.values, "runtime": limits})
    except ValidationError as error:
        problems += [problem for fault in faults(error, Settings) if (problem := tree.problem(fault)) is not None]
    else:
        if settings.live_data_inspect_enabled and limits.admin_api_is_open:
            problems.append(_open_admin_api(limits))
    if problems:
        raise InvalidPipeline(problems)
    return LoadedSettings(settings, tuple(tree.warnings), file)


def _limits(environ: Mapping[str, str], problems: list[UserError]) -> RuntimeLimits:
    try:
        return RuntimeLimits.model_validate(limit_values(environ))
    except ValidationError as error:
        for fault in faults(error, RuntimeLimits):
            field = str(fault.path[0])
            problems.append(UserError(SETTING_INVALID, fault.sentence.replace(f"'{field}'", variable_of(field), 1)))
        return RuntimeLimits()


def _open_admin_api(limits: RuntimeLimits) -> UserError:
    return UserError(
        SETTING_INVALID,
        f"{variable_of('admin_api_host')} is '{limits.admin_api_host}', where other machines can read rows",
        hint=f"set {variable_of('admin_api_token')}, or {variable_of('admin_api_insecure')}=true to allow it",
    )
