"""The public interface of connectors: built-in ones and plugins use nothing else.

Importing it loads neither Spark nor Arrow.
"""

from streamling.plan.contract import Discovery
from streamling.plugin.contract import (
    Ack,
    Applied,
    BadRow,
    Epoch,
    Extent,
    Guarantee,
    HearsFinalizers,
    HearsMarkers,
    Json,
    Measured,
    Offer,
    Placement,
    Projection,
    Reader,
    Room,
    Sink,
    SinkCapabilities,
    SinkContext,
    Slice,
    Source,
    TakesColumns,
    Task,
    Transform,
    TransformContext,
    Writer,
)
from streamling.plugin.registry import Kind, Probe, register
from streamling.plugin.simple import SimpleSink

__all__ = [
    "Ack",
    "Applied",
    "BadRow",
    "Discovery",
    "Epoch",
    "Extent",
    "Guarantee",
    "HearsFinalizers",
    "HearsMarkers",
    "Json",
    "Kind",
    "Measured",
    "Offer",
    "Placement",
    "Probe",
    "Projection",
    "Reader",
    "Room",
    "SimpleSink",
    "Sink",
    "SinkCapabilities",
    "SinkContext",
    "Slice",
    "Source",
    "TakesColumns",
    "Task",
    "Transform",
    "TransformContext",
    "Writer",
    "register",
]
