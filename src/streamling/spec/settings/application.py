"""The application settings: connections, tuning, identity, secrets. Everything that is not the pipeline.

There are three layers: the defaults of the models, a file, and the environment (`STREAMLING__BLOCK__KEY`). A later
layer overrides single keys at any depth. Case in keys is ignored; unknown keys give a warning, not an error.
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
from streamling.spec.mask import is_secretive
from streamling.spec.secret import Secret
from streamling.spec.settings.blocks import (
    ClickHouseSinkSettings,
    ClickHouseSourceSettings,
    DrainPolicy,
    DynamicTableBackend,
    EpochSettings,
    ExternalHttpHandler,
    KafkaSinkSettings,
    KafkaSourceSettings,
    LiveDataInspect,
    OpenTelemetryMetrics,
    Plugin,
    PostgresConnection,
    PostgresSinkSettings,
    PrintSinkSettings,
    SettingBlock,
    StateBackend,
    WasmScript,
)
from streamling.spec.settings.environment_only import RuntimeLimits, limit_values, variable_of
from streamling.spec.settings.layers import environment_values, file_values, find_config
from streamling.spec.settings.masking import mask_fields, remember_secrets
from streamling.spec.settings.names import SettingTree, all_leaves, connection_name


class Settings(SettingBlock):
    """All settings, frozen. Blocks and keys have the names that they have in a file."""

    application_id: str = Field(default="local_app_v1", min_length=1, description="Identity of this application.")
    log_format: str = Field(default="text", description="`json` for one object per line; any other value is text.")
    pipeline_definition_location: str = Field(
        default="./pipeline.yaml", description="Pipeline file if the command line names none."
    )
    record_batch_interval_ms: Int = Field(default=100, ge=0, description="Longest time that a source batch stays open.")
    record_batch_size: Int = Field(default=1000, ge=1, description="Maximum rows in one source batch.")
    internal_buffer_size: Int = Field(default=10, ge=1, description="Batches in flight between two operators.")
    num_records_before_stop: Int | None = Field(
        default=None, ge=0, description="Stop when a sink has written this many rows."
    )
    checkpoint_interval_sec: Int = Field(default=5, ge=0, description="Pause between checkpoint epochs.")
    enforce_primary_keys: Bool = Field(default=False, description="Make missing primary keys errors, not warnings.")
    live_data_inspect_enabled: Bool = Field(default=False, description="Sample rows and start the admin API.")
    admin_api_enabled: Bool = Field(
        default=False, description="Start the admin API, also without sampling rows for it."
    )
    admin_api_port: Int = Field(default=3000, ge=0, le=65535, description="Admin API port; 0 means any free port.")
    job_mode: Bool = Field(default=False, description="Exit when all sources, which must be bounded, have been read.")
    drain_policy: DrainPolicy = Field(
        default=DrainPolicy.AUTO, description="What happens to rows in flight when the pipeline stops."
    )
    preview_tolerant_mode: Bool = Field(
        default=False, description="After a fatal error keep serving the admin API instead of exiting."
    )
    progress_deadline_secs: Int = Field(
        default=300,
        ge=1,
        description="Seconds without progress after which the pipeline is not ready, with a warning in the log.",
    )
    progress_exit_secs: Int | None = Field(
        default=None, ge=1, description="Seconds without progress after which the process ends with exit code 1."
    )
    http_secret_header: dict[str, Secret] = Field(default_factory=dict, description="Header names by name of secret.")
    http_secret_value: dict[str, Secret] = Field(default_factory=dict, description="Header values by name of secret.")
    postgres_sink_connections: dict[str, PostgresConnection] = Field(
        default_factory=dict,
        description="Connections of single sinks and lookups; keys that they do not set are those of `postgres_sink`.",
    )
    live_data_inspect: LiveDataInspect = Field(default_factory=LiveDataInspect)
    state_backend: StateBackend = Field(default_factory=StateBackend)
    dynamic_table_backend: DynamicTableBackend = Field(default_factory=DynamicTableBackend)
    external_http_handler: ExternalHttpHandler = Field(default_factory=ExternalHttpHandler)
    wasm_script: WasmScript = Field(default_factory=WasmScript)
    plugin: Plugin = Field(default_factory=Plugin)
    kafka_source: KafkaSourceSettings = Field(default_factory=KafkaSourceSettings)
    kafka_sink: KafkaSinkSettings = Field(default_factory=KafkaSinkSettings)
    clickhouse_source: ClickHouseSourceSettings = Field(default_factory=ClickHouseSourceSettings)
    clickhouse_sink: ClickHouseSinkSettings = Field(default_factory=ClickHouseSinkSettings)
    postgres_sink: PostgresSinkSettings = Field(default_factory=PostgresSinkSettings)
    print_sink: PrintSinkSettings = Field(default_factory=PrintSinkSettings)
    open_telemetry_metrics: OpenTelemetryMetrics = Field(default_factory=OpenTelemetryMetrics)
    epoch: EpochSettings = Field(default_factory=EpochSettings)
    spark: dict[str, str] = Field(default_factory=dict, description="Spark's own settings, by their full names.")
    runtime: RuntimeLimits = Field(
        default_factory=RuntimeLimits, description="Settings that only the environment can set."
    )

    @property
    def wants_admin_api(self) -> bool:
        return self.live_data_inspect_enabled or self.admin_api_enabled

    def postgres_connection(self, sink: str) -> PostgresConnection:
        """The connection of a Postgres sink: its own if it has one, else that of `postgres_sink`."""
        return self.postgres_sink_connections.get(connection_name(sink), self.postgres_sink)

    def masked(self) -> dict[str, Any]:
        """All settings as plain values for logs, with secrets masked."""
        return mask_fields(self)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, warnings about them, and the file they were read from, if any."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    file: Path | None = None


def public_keys() -> frozenset[str]:
    """Last parts of the names of all settings that have one value which is not a secret."""
    return frozenset(name for name in all_leaves(Settings) if not is_secretive(name))


def load_settings(*, config: str | None, environ: Mapping[str, str], cwd: Path) -> LoadedSettings:
    """The settings of this process. Raises UserError CONFIG_FILE, or InvalidPipeline with one SETTING_INVALID per key.

    `config` is the file name that the user passed, or None.
    """
    file = find_config(config, cwd)
    tree = SettingTree(Settings)
    if file is not None:
        name = str(file.relative_to(cwd) if file.is_relative_to(cwd) else file)
        tree.put_all(file_values(file, name, public_keys()))
    tree.put_all(environment_values(environ))
    problems = list(tree.problems)
    limits = _limits(environ, problems)
    # The wait for a connection must leave enough of the shutdown budget to stop in time.
    tree.suggest(
        ("state_backend", "postgres", "acquire_timeout_secs"), max(1, min(5, limits.shutdown_budget_secs // 2))
    )
    tree.inherit(("postgres_sink",), ("postgres_sink_connections",), PostgresConnection)
    try:
        settings = Settings.model_validate({**tree.values, "runtime": limits})
    except ValidationError as error:
        problems += [problem for fault in faults(error, Settings) if (problem := tree.problem(fault)) is not None]
    if problems:
        raise InvalidPipeline(problems)
    check_settings(settings)
    return LoadedSettings(settings, tuple(tree.warnings), file)


def check_settings(settings: Settings) -> None:
    """What a valid model may still have wrong; raises InvalidPipeline. Afterwards `mask_text` knows its secrets."""
    remember_secrets(settings)
    if settings.wants_admin_api and settings.runtime.admin_api_is_open:
        raise InvalidPipeline([_open_admin_api(settings.runtime)])


def _limits(environ: Mapping[str, str], problems: list[UserError]) -> RuntimeLimits:
    try:
        return RuntimeLimits.model_validate(limit_values(environ))
    except ValidationError as error:
        for fault in faults(error, RuntimeLimits):
            field = str(fault.path[0])
            problems.append(UserError(SETTING_INVALID, fault.sentence.replace(f"'{field}'", variable_of(field), 1)))
        return RuntimeLimits()


def _open_admin_api(limits: RuntimeLimits) -> UserError:
    """The problem of limits whose `admin_api_is_open`."""
    return UserError(
        SETTING_INVALID,
        f"{variable_of('admin_api_host')} is '{limits.admin_api_host}': other machines could read rows without a token",
        hint=f"set {variable_of('admin_api_token')}, or {variable_of('admin_api_insecure')}=true to allow it",
    )
