"""The telemetry of one run: its metrics, and their export."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from streamling.spec.settings import Settings
from streamling.telemetry.destination import metrics_destination, parse_deny_list, parse_tags
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from streamling.telemetry.export import MetricExport

SERVICE = "streamling"


class Telemetry:
    """Made when a run begins. `start` imports what is needed, and may be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        options = settings.open_telemetry_metrics
        self._receiver = metrics_destination(options)
        self._interval_s = options.batch_interval_secs
        self.metrics = Metrics(
            resource=resource_of(settings),
            tags=parse_tags(options.global_tags),
            denies=parse_deny_list(options.metric_deny_list).denies,
        )
        self._lock = threading.Lock()
        self._started = False
        self._export: MetricExport | None = None

    def start(self) -> None:
        """Import the SDK; begin to export, if that is configured. Calls after the first do nothing."""
        with self._lock:
            if self._started:
                return
            self._started = True
        self.metrics.start()
        if self._receiver is not None:
            from streamling.telemetry.export import MetricExport

            self._export = MetricExport(self.metrics, self._receiver, self._interval_s)
            self._export.start()

    def close(self) -> None:
        """Send what was not sent yet, for at most 5 s. Calls after the first do nothing."""
        with self._lock:
            self._started = True
            export, self._export = self._export, None
        if export is not None:
            export.close()


def resource_of(settings: Settings) -> dict[str, str]:
    """The attributes of this process."""
    pod = settings.runtime.pod_name
    attributes = {"service.name": SERVICE, "service.instance.id": settings.application_id}
    return {**attributes, "k8s.pod.name": pod} if pod else attributes
