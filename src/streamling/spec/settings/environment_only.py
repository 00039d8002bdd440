"""Settings that only environment variables can set."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from pydantic import Field, field_validator

from streamling.spec.coercion import Bool, Int
from streamling.spec.secret import Secret
from streamling.spec.settings.blocks import SettingBlock

PREFIX = "STREAMLING__"


class RuntimeLimits(SettingBlock):
    """Time budgets and the environment of the process."""

    shutdown_budget_secs: Int = Field(
        default=25, gt=0, description="Time from the first stop signal until the process is ended."
    )
    plugin_drain_budget_secs: Int = Field(default=60, ge=0, description="Time that plugins have to drain.")
    consumer_fetch_timeout_sec: Int = Field(
        default=60, ge=1, description="Timeout of the first fetch of a Kafka source."
    )
    stall_watchdog_timeout_sec: Int = Field(
        default=60, ge=1, description="Time without progress after which a Kafka source counts as stalled."
    )
    query_timeout_sec: Int = Field(default=60, ge=1, description="Timeout of one page query of a ClickHouse source.")
    backpressure_event_threshold_ms: Int = Field(
        default=100, ge=0, description="Shortest wait that counts as backpressure."
    )
    admin_api_host: str = Field(default="127.0.0.1", description="Address that the admin API binds to.")
    admin_api_token: Secret | None = Field(default=None, description="Bearer token of the admin API.")
    admin_api_insecure: Bool = Field(default=False, description="Allow any address without a token.")
    log_filter: str | None = Field(
        default=None, description="Log level, optionally followed by `target=level` pairs, separated by commas."
    )
    pod_name: str | None = Field(default=None, description="Resource attribute of the metrics.")

    @field_validator("admin_api_token")
    @classmethod
    def _without_spaces(cls, token: Secret | None) -> Secret | None:
        """A token that comes from a file often ends with a newline, which no header can have."""
        text = token.reveal().strip() if token is not None else ""
        return Secret(text) if text else None

    @property
    def admin_api_is_local(self) -> bool:
        """Whether only this machine can reach the admin API."""
        return is_loopback(self.admin_api_host)

    @property
    def admin_api_is_open(self) -> bool:
        """Whether the admin API would show rows to other machines without authentication."""
        return not (self.admin_api_is_local or self.admin_api_token or self.admin_api_insecure)


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine."""
    if host.lower() in {"localhost", "::1"}:
        return True
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


VARIABLES = {
    "STREAMLING__SHUTDOWN_BUDGET_SECS": "shutdown_budget_secs",
    "STREAMLING__PLUGIN_DRAIN_BUDGET_SECS": "plugin_drain_budget_secs",
    "STREAMLING__KAFKA_SOURCE__CONSUMER_FETCH_TIMEOUT_SEC": "consumer_fetch_timeout_sec",
    "STREAMLING__KAFKA_SOURCE__STALL_WATCHDOG_TIMEOUT_SEC": "stall_watchdog_timeout_sec",
    "STREAMLING__CLICKHOUSE_SOURCE__QUERY_TIMEOUT_SEC": "query_timeout_sec",
    "STREAMLING__BACKPRESSURE_EVENT_THRESHOLD_MS": "backpressure_event_threshold_ms",
    "STREAMLING__ADMIN_API_HOST": "admin_api_host",
    "STREAMLING__ADMIN_API_TOKEN": "admin_api_token",
    "STREAMLING__ADMIN_API_INSECURE": "admin_api_insecure",
    "RUST_LOG": "log_filter",
    "POD_NAME": "pod_name",
}
_FIELDS = {field: variable for variable, field in VARIABLES.items()}


def limit_values(environ: Mapping[str, str]) -> dict[str, str]:
    """The values that environment variables give to the fields of RuntimeLimits."""
    values = {}
    for name, text in environ.items():
        # Case is ignored only in our own variables.
        known = name.upper() if name.upper().startswith(PREFIX) else name
        if known in VARIABLES:
            values[VARIABLES[known]] = text
    return values


def variable_of(field: str) -> str:
    return _FIELDS[field]


def is_limit(path: tuple[str, ...]) -> bool:
    """Whether a key in a file is one that only an environment variable may set."""
    return PREFIX + "__".join(path).upper() in VARIABLES
