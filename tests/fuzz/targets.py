"""All kinds of inputs, by name."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.answers import HttpAnswers
from fuzz.rows import AVRO, CSV, JSON_LINES, AvroBodies, AvroSchemas, Files, JsonBodies, avro_file
from fuzz.target import Target
from fuzz.texts import Pipelines, SettingsFiles, Sql

TARGETS: dict[str, Callable[[], Target]] = {
    "pipeline": Pipelines,
    "settings": SettingsFiles,
    "sql": Sql,
    "avro": AvroBodies,
    "avro-schema": AvroSchemas,
    "json": JsonBodies,
    "csv-file": lambda: Files("csv", CSV),
    "json-file": lambda: Files("json", JSON_LINES),
    "avro-file": lambda: Files("avro", [avro_file(*AVRO[n], codec) for n in (0, 1) for codec in ("null", "deflate")]),
    "http": HttpAnswers,
}
