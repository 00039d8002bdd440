"""The Avro schema of a topic: the newest of its subject, or one derived from the columns and registered."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from streamling.clients.schema_registry import NoSuchSchema, RegisteredSchema, SchemaRegistry
from streamling.errors import SCHEMA_UNFIT, PermanentError, UserError
from streamling.formats.avro_derivation import derive_schema
from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings.blocks import KafkaConnection

if TYPE_CHECKING:
    from streamling.formats.avro_fit import RowEncoder

log = logging.getLogger(__name__)
_MAGIC = b"\0"


def make_encoder(
    node: NodeSpec, connection: KafkaConnection, topic: str, columns: Schema, key: tuple[str, ...], *, evolve: bool
) -> RowEncoder:
    """The encoder of values, framed with the id of their schema.

    Raises UserError SCHEMA_UNFIT with everything that does not fit, PermanentError if the registry refuses a schema.
    """
    subject = f"{topic}-value"
    with SchemaRegistry(connection, condition=SCHEMA_UNFIT) as registry:
        derived = json.dumps(derive_schema(columns, topic, key))
        try:
            registered = registry.latest(subject)
        except NoSuchSchema:
            registered = _register(registry, subject, derived)
            log.info("%s: registered the schema of subject '%s'", node.described(), subject)
        encoder, misfits = _fit(columns, registered)
        if encoder.dropped and not misfits and evolve:
            added = encoder.dropped
            registered = _register(registry, subject, _extend(registered.text, derived, columns, added))
            encoder, misfits = _fit(columns, registered)
            log.info("%s: added to the schema of subject '%s': %s", node.described(), subject, ", ".join(added))
    if misfits:
        listed = "".join(f"\n  - {misfit}" for misfit in misfits)
        hint = "cast the columns in a sql transform, or register a version of the schema that fits"
        message = f"{node.described()}: the schema of subject '{subject}' does not fit the input:{listed}"
        raise UserError(SCHEMA_UNFIT, message, node=node.name, where=node.where, hint=hint)
    if encoder.dropped:
        message = "%s: the schema of subject '%s' has no field for these columns, which are not written: %s"
        log.warning(message, node.described(), subject, ", ".join(encoder.dropped))
    return encoder


def _register(registry: SchemaRegistry, subject: str, text: str) -> RegisteredSchema:
    try:
        registry.register(subject, text)
    except PermanentError as error:
        message = f"the schema registry refuses a schema for subject '{subject}': {error.message}"
        hint = "the compatibility of the subject decides which changes are allowed"
        raise PermanentError(SCHEMA_UNFIT, message, hint=hint) from error
    return registry.latest(subject)


def _fit(columns: Schema, registered: RegisteredSchema) -> tuple[RowEncoder, tuple[str, ...]]:
    from streamling.formats.avro_fit import fit_columns

    header = _MAGIC + registered.id.to_bytes(4)
    return fit_columns(columns, registered.text, registered.references, header=header)


def _extend(text: str, derived: str, columns: Schema, added: tuple[str, ...]) -> str:
    """The registered schema with the fields of more columns: all may be null, and null is their default, so that old
    and new readers understand both versions."""
    from streamling.formats.avro import record_of
    from streamling.formats.avro_derivation import field_name

    names = {field_name(name) for name in added}
    root = json.loads(text)
    record = record_of(root)
    for field in record_of(json.loads(derived))["fields"]:
        if field["name"] in names:
            branches = field["type"] if isinstance(field["type"], list) else ["null", field["type"]]
            record["fields"].append({**field, "type": branches, "default": None})
    return json.dumps(root)
