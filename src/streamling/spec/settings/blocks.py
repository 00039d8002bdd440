"""The blocks of the application settings, with every key and its default."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamling.spec.coercion import Bool, Choice, Int, Names
from streamling.spec.duration import Duration
from streamling.spec.faults import missing_field
from streamling.spec.secret import Secret
from streamling.spec.settings.masking import hide


class SettingBlock(BaseModel):
    """A frozen group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Without secrets, also where they are plain text: in URLs, and in maps with names that a user chooses."""
        return ((name, hide(value)) for name, value in super().__repr_args__())


class DrainPolicy(Choice):
    AUTO = "auto"
    DRAIN = "drain"
    FAST = "fast"


class BackendType(Choice):
    IN_MEMORY = "InMemory"
    POSTGRES = "Postgres"
    SQLITE = "Sqlite"


class SslMode(Choice):
    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


class SecurityProtocol(Choice):
    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def sasl(self) -> bool:
        return self.value.startswith("sasl")

    @property
    def tls(self) -> bool:
        return self.value.endswith("ssl")


class Compression(Choice):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"
    LZ4 = "lz4"


class LiveDataInspect(SettingBlock):
    """Sampling of rows for the live view of a running pipeline."""

    records_per_topology_node: Int = Field(default=15, ge=0, description="Rows sampled and kept per node.")
    refresh_in_secs: Int = Field(default=30, ge=1, description="Sampling window.")


class SqliteStateSettings(SettingBlock):
    """Positions in a local file."""

    database_path: str = Field(default="./state.db", description="File, created if missing.")
    max_connections: Int = Field(default=10, ge=1, description="Maximum number of connections.")
    state_table_name: str = Field(default="state", description="Table of the positions.")


class PostgresServer(SettingBlock):
    """The address and login of a Postgres server."""

    host: str = Field(default="localhost", description="Host name.")
    port: Int = Field(default=5432, ge=1, le=65535, description="Port.")
    db: str = Field(default="streamling", description="Database.")
    user: str = Field(default="graph-node", description="User.")
    password: Secret = Field(default=Secret(), description="Password.")
    sslmode: SslMode = Field(default=SslMode.REQUIRE, description="TLS mode, as in libpq.")
    max_connections: Int = Field(default=20, ge=1, description="Maximum number of connections.")


class PostgresStateSettings(PostgresServer):
    """Positions in Postgres."""

    state_schema_name: str = Field(default="streamling", description="Schema, created if missing.")
    state_table_name: str = Field(default="state", description="Table, created if missing.")
    acquire_timeout_secs: Int = Field(
        default=5,
        ge=0,
        description="Longest wait for a pooled connection; by default half the shutdown budget, but 1 to 5 seconds.",
    )


class StateBackend(SettingBlock):
    """Where source positions are stored."""

    backend_type: BackendType = Field(default=BackendType.SQLITE, description="Type of store.")
    sqlite: SqliteStateSettings = Field(default_factory=SqliteStateSettings, description="Used with `Sqlite`.")
    postgres: PostgresStateSettings = Field(default_factory=PostgresStateSettings, description="Used with `Postgres`.")


class PostgresTables(PostgresServer):
    """Dynamic tables in Postgres."""

    dt_schema_name: str = Field(default="streamling", description="Schema if the node names none.")
    cache_enabled: Bool = Field(default=False, description="Default of the node option `cache`.")
    cache_refresh_debounce_ms: Int = Field(
        default=1000, ge=0, description="Minimum time between freshness checks; 0 checks for every batch."
    )


class DynamicTableBackend(SettingBlock):
    """Where dynamic tables are stored."""

    max_batch_size: Int = Field(
        default=100_000, ge=1, description="Maximum number of values in one SELECT or INSERT statement."
    )
    postgres: PostgresTables = Field(default_factory=PostgresTables, description="Connection of all dynamic tables.")


class ExternalHttpHandler(SettingBlock):
    """Requests of handler transforms and webhook sinks."""

    trigger_max_count: Int = Field(default=2000, ge=1, description="Maximum rows in one request.")
    operator_timeout_sec: Int = Field(default=300, ge=1, description="Timeout of one attempt.")
    buffer_size: Int = Field(default=25, ge=1, description="Maximum batches in flight in a handler.")


class WasmScript(SettingBlock):
    """The sandbox of script transforms."""

    runtime_wasm_file_path: str | None = Field(default=None, description="File that replaces the built-in sandbox.")


class Plugin(SettingBlock):
    """Plugins to load, and their options."""

    path: str | None = Field(default=None, description="A plugin, or a directory of plugins; empty means none.")
    channel_capacity: Int = Field(default=50, ge=1, description="Batches buffered per direction.")
    preprocessor_ids: Names = Field(default=(), description="Preprocessors to run, in this order.")
    preprocessor_options: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="Options by preprocessor id."
    )
    side_output_ids: Names = Field(default=(), description="Side outputs to attach to every source.")
    side_output_options: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="Options by side output id."
    )
    own: dict[str, dict[str, Secret]] = Field(
        default_factory=dict,
        description="Everything written as `plugin.<name>.<key>`, by plugin name; both in lower case.",
    )


class KafkaConnection(SettingBlock):
    """One Kafka connection of the process."""

    brokers: str = Field(default="localhost:9092", description="Bootstrap brokers, `host:port`, separated by commas.")
    security_protocol: SecurityProtocol = Field(default=SecurityProtocol.PLAINTEXT, description="Security protocol.")
    sasl_mechanism: str | None = Field(default=None, description="Required with a SASL protocol.")
    sasl_username: str | None = Field(default=None, description="Required with a SASL protocol.")
    sasl_password: Secret | None = Field(default=None, description="Required with a SASL protocol.")
    schema_registry_url: str = Field(
        default="http://localhost:18081", description="URL of the schema registry; needed for Avro only."
    )
    schema_registry_username: str | None = Field(default=None, description="User for basic authentication.")
    schema_registry_password: Secret | None = Field(default=None, description="Password for basic authentication.")
    client_id: str | None = Field(default=None, description="Client id that the brokers see.")

    @model_validator(mode="after")
    def _check_sasl(self) -> KafkaConnection:
        names = ("sasl_mechanism", "sasl_username", "sasl_password")
        missing = [name for name in names if not getattr(self, name)]
        if self.security_protocol.sasl and missing:
            text = f"is required because 'security_protocol' is {self.security_protocol.value}"
            others = " and ".join(f"'{name}'" for name in missing[1:])
            raise missing_field(f"{text}; so is {others}" if others else text, field=missing[0])
        return self


class KafkaSourceSettings(KafkaConnection):
    """The connection of Kafka sources."""

    consumer_group_id: str | None = Field(
        default=None,
        description="Prefix of the consumer groups; each application needs its own. If not set, each run has a random "
        "group.",
    )
    session_timeout_ms: Int = Field(
        default=10_000,
        ge=1000,
        le=300_000,
        description="Time after which the partitions of a process that stopped responding are assigned to others.",
    )
    lag_report_interval_ms: Int = Field(default=60000, ge=1, description="Interval between updates of the lag metric.")


class KafkaSinkSettings(KafkaConnection):
    """The connection of Kafka sinks."""


class ClickHouseConnection(SettingBlock):
    """One ClickHouse connection of the process."""

    url: str = Field(default="http://localhost:8123", description="HTTP endpoint.")
    user: str = Field(default="default", description="User.")
    password: Secret = Field(default=Secret(), description="Password.")
    database: str = Field(default="default", description="Database.")
    compression: Compression = Field(default=Compression.NONE, description="Compression of HTTP bodies.")
    compression_level: Int = Field(default=6, ge=0, le=9, description="Compression level, for gzip only.")


class ClickHouseSourceSettings(ClickHouseConnection):
    """The connection of ClickHouse sources."""

    page_size: Int = Field(default=10_000_000, ge=1, description="Maximum rows per query.")
    sort_key_range: Int = Field(
        default=1_000_000,
        ge=100,
        description="Accepted, without effect: pages are cut by their number of rows; also `block_range`.",
    )


class ClickHouseSinkSettings(ClickHouseConnection):
    """The connection of ClickHouse sinks."""

    batch_size: Int = Field(default=100_000, ge=1, description="Rows per insert.")
    batch_flush_interval: Duration = Field(default=timedelta(seconds=1), description="Longest wait of a batch.")


class PostgresConnection(SettingBlock):
    """The address and login of the server of a Postgres sink."""

    host: str = Field(default="127.0.0.1", description="Host name.")
    port: Int = Field(default=5432, ge=1, le=65535, description="Port.")
    user: str = Field(default="graph-node", description="User.")
    pass_: Secret = Field(default=Secret(), alias="pass", description="Password.")
    db: str = Field(default="postgres", description="Database.")
    sslmode: SslMode | None = Field(
        default=SslMode.DISABLE, description="TLS mode, as in libpq; if empty, the client library decides."
    )

    @field_validator("sslmode", mode="before")
    @classmethod
    def _driver_decides(cls, value: object) -> object:
        return None if isinstance(value, str) and not value.strip() else value


class PostgresSinkSettings(PostgresConnection):
    """The connection of Postgres sinks and how they write."""

    batch_size: Int = Field(default=100, ge=1, description="Default of the option `batch_size` of Postgres sinks.")
    batch_flush_interval: Duration = Field(
        default=timedelta(seconds=1), description="Default of the option `batch_flush_interval` of Postgres sinks."
    )
    statement_timeout_secs: Int = Field(
        default=60, ge=0, description="Timeout of a statement, including its wait for locks; 0 means no limit."
    )
    pool_acquire_timeout_secs: Int = Field(
        default=30, ge=0, description="Timeout of a login, and of the wait for a session of a pooler; 0 means 10."
    )
    pool_idle_timeout_secs: Int = Field(
        default=600, ge=0, description="A connection idle for longer is replaced before its next use; 0 means never."
    )
    pool_max_lifetime_secs: Int = Field(
        default=1800, ge=0, description="A connection older than this is replaced before its next use; 0 means never."
    )


class PrintSinkSettings(SettingBlock):
    """Defaults of print sinks."""

    sample_every: Int = Field(default=1, ge=1, description="Print every n-th row.")
    num_records_before_stop: Int | None = Field(default=None, ge=0, description="Stop after this many rows.")


class OpenTelemetryMetrics(SettingBlock):
    """Export of metrics and traces."""

    ingestion_endpoint: str = Field(
        default="none", description="URL of the OTLP endpoint, used as written; any other value turns the export off."
    )
    endpoint_protocol: str = Field(
        default="", description="`http/json`, `http/protobuf` or `grpc`; empty means `http/protobuf`."
    )
    traces_endpoint: str = Field(
        default="none",
        description="URL of the OTLP endpoint of traces, used as written; any other value turns them off. The protocol "
        "is that of the metrics.",
    )
    batch_interval_secs: Int = Field(default=15, ge=1, description="Interval between exports.")
    global_tags: str = Field(default="", description="Labels of all metrics: `k:v,k2:v2`.")
    metric_deny_list: str = Field(
        default="kafka_consumer.msg_decode_latency, kafka_producer.msg_encode_latency",
        description="Comma-separated regular expressions of metric names that are not exported.",
    )


class EpochSettings(SettingBlock):
    """How large an epoch may become."""

    driver_rows: Int = Field(
        default=20_000,
        ge=0,
        description="Maximum rows of an epoch computed on the driver; unless it is set, `collect_rows` if there are no "
        "transforms and every sink runs on the driver.",
    )
    rows: Int = Field(default=2_000_000, ge=1, description="Maximum rows of an epoch.")
    collect_rows: Int = Field(
        default=200_000, ge=1, description="Maximum rows of an epoch if a sink or a transform runs on the driver."
    )
    bytes: Int = Field(
        default=64 * 1024 * 1024, ge=1, description="Maximum bytes that are buffered ahead, and that are collected."
    )
    takeover_ms: Int = Field(
        default=10_000,
        ge=1,
        description="Time after which the unchanged record of another process counts as abandoned, and is taken over.",
    )
    max_same_rejects: Int = Field(
        default=1000,
        ge=0,
        description="The run ends if a sink rejects so many rows in a row in the same way, in whole epochs without an "
        "accepted row: the target is wrong then. 0: no limit.",
    )
