"""What sources, transforms and sinks promise the engine, and what the engine promises them.

An *epoch* takes slices of every source that has rows, runs the pipeline over them, lets every sink write and
commit, and only then moves the stored positions. Everything here serves that order. Built-in connectors and those of
third parties implement the same base classes and `register` a `Kind`. Importing this loads neither Spark nor Arrow.
"""

from streamling.connector.capabilities import (
    BatchPolicy,
    Guarantee,
    Placement,
    SinkCapabilities,
    SourceCapabilities,
    TransformCapabilities,
    batch_policy,
)
from streamling.connector.kinds import Kind, Probe, register
from streamling.connector.lookup import Lookup
from streamling.connector.positions import compare_positions
from streamling.connector.reports import BadRow, Counted, Reached, Report, Timed
from streamling.connector.request_keys import RequestKeys
from streamling.connector.runtime import KeyValues, Runtime
from streamling.connector.sink import Applied, Sink, SinkContext, WaitsForOthers, Writer
from streamling.connector.slices import Epoch, Json, Offer, Room, Slice, Task
from streamling.connector.source import Decoder, Extent, Locator, Projection, Reader, Source
from streamling.connector.transform import Processor, Transform, TransformContext
from streamling.plan.contract import Discovery

__all__ = [
    "Applied",
    "BadRow",
    "BatchPolicy",
    "Counted",
    "Decoder",
    "Discovery",
    "Epoch",
    "Extent",
    "Guarantee",
    "Json",
    "KeyValues",
    "Kind",
    "Locator",
    "Lookup",
    "Offer",
    "Placement",
    "Probe",
    "Processor",
    "Projection",
    "Reached",
    "Reader",
    "Report",
    "RequestKeys",
    "Room",
    "Runtime",
    "Sink",
    "SinkCapabilities",
    "SinkContext",
    "Slice",
    "Source",
    "SourceCapabilities",
    "Task",
    "Timed",
    "Transform",
    "TransformCapabilities",
    "TransformContext",
    "WaitsForOthers",
    "Writer",
    "batch_policy",
    "compare_positions",
    "register",
]
