"""The telemetry of one run: its metrics, and their export."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from streamling.spec.settings import Settings
from streamling.telemetry.destination import metrics_destination, parse_deny_list, parse_tags, traces_destination
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from streamling.telemetry.destination import Destination
    from streamling.telemetry.export import MetricExport
    from streamling.telemetry.tracing import Tracer

log = logging.getLogger(__name__)

SERVICE = "streamling"


class Telemetry:
    """Made when a run begins. `start` imports what is needed, and may be called from any thread."""

    def __init__(self, settings: Settings, instance: str | None = None) -> None:
        """`instance`: the name of this run where it is not the application id."""
        options = settings.open_telemetry_metrics
        self._receiver = metrics_destination(options)
        self._trace_receiver = traces_destination(options)
        self._resource = resource_of(settings, instance)
        self._interval_s = options.batch_interval_secs
        self.metrics = Metrics(
            resource=self._resource,
            tags=parse_tags(options.global_tags),
            denies=parse_deny_list(options.metric_deny_list).denies,
        )
        self._lock = threading.Lock()
        self._started = False
        self._export: MetricExport | None = None
        self.tracer: Tracer | None = None
        """Set by `start`, if traces are exported."""

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
        if self._trace_receiver is not None:
            self._start_tracing(self._trace_receiver)

    def _start_tracing(self, receiver: Destination) -> None:
        try:
            from streamling.telemetry.tracing import Tracer

            self.tracer = Tracer(receiver, self._resource)
        except Exception as error:  # whatever is wrong, the pipeline runs
            log.warning("traces are not exported: the client did not start: %s", error)

    def close(self) -> None:
        """Send what was not sent yet, for at most 5 s. Calls after the first do nothing."""
        with self._lock:
            self._started = True
            export, self._export = self._export, None
            tracer, self.tracer = self.tracer, None
        # At the same time: neither may use up the time of the other.
        closing = threading.Thread(target=tracer.close, name="close traces", daemon=True) if tracer else None
        if closing is not None:
            closing.start()
        if export is not None:
            export.close()
        if closing is not None:
            closing.join()


def resource_of(settings: Settings, instance: str | None = None) -> dict[str, str]:
    """The attributes of this process."""
    pod = settings.runtime.pod_name
    attributes = {"service.name": SERVICE, "service.instance.id": instance or settings.application_id}
    return {**attributes, "k8s.pod.name": pod} if pod else attributes
