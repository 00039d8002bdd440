"""The shape of an options model: which maps have which fields.

It is read from the model's JSON schema, as the documentation is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

Path = tuple[str | int, ...]
_Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Finds the field that a validation error is about."""

    root: _Schema

    @classmethod
    def of(cls, model: type[BaseModel]) -> ModelShape:
        try:
            return cls(model.model_json_schema())
        except PydanticInvalidForJsonSchema:
            fields: dict[str, _Schema] = {field.alias or name: {} for name, field in model.model_fields.items()}
            return cls({"type": "object", "properties": fields})

    def path(self, loc: Sequence[str | int]) -> Path:
        """`loc` without the names of union members that pydantic puts into it."""
        return self._walk(loc)[0]

    def path_of_unknown(self, loc: Sequence[str | int]) -> Path:
        """As `path`, for a last part that is not a field of the model."""
        return (*self._walk(loc[:-1])[0], loc[-1])

    def fields(self, loc: Sequence[str | int]) -> list[str]:
        """Names of the fields that the map at `loc` accepts."""
        names: dict[str, None] = {}
        for schema in self._alternatives(self._walk(loc)[1]):
            names.update(dict.fromkeys(schema.get("properties", {})))
        return list(names)

    def _walk(self, loc: Sequence[str | int]) -> tuple[Path, _Schema]:
        path: list[str | int] = []
        schema = self.root
        for part in loc:
            if (tagged := self._tagged(schema, part)) is not None:
                schema = tagged
                continue
            alternatives = self._alternatives(schema)
            part = _field_name(alternatives, part)
            if (inner := self._inner(alternatives, part)) is not None:
                schema = inner
                path.append(part)
        return tuple(path), schema

    def _inner(self, alternatives: Sequence[_Schema], part: str | int) -> _Schema | None:
        for schema in alternatives:
            if isinstance(part, int):
                inner = schema.get("items")
                if inner is None and schema.get("prefixItems"):
                    inner = schema["prefixItems"][min(part, len(schema["prefixItems"]) - 1)]
            else:
                inner = schema.get("properties", {}).get(part)
                if inner is None and schema.get("type") == "object":
                    inner = schema.get("additionalProperties")
            if inner is True:
                return {}
            if isinstance(inner, dict):
                return inner
        return None

    def _tagged(self, schema: _Schema, part: str | int) -> _Schema | None:
        """The member of a tagged union that `part` names, if the schema is such a union."""
        schema = self._resolve(schema)
        for one in (schema, *map(self._resolve, schema.get("anyOf", ()))):
            mapping = one.get("discriminator", {}).get("mapping", {})
            if part in mapping:
                return {"$ref": mapping[part]}
        return None

    def _alternatives(self, schema: _Schema) -> list[_Schema]:
        schema = self._resolve(schema)
        members = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if not members:
            return [schema]
        return [one for member in members for one in self._alternatives(member)]

    def _resolve(self, schema: _Schema) -> _Schema:
        while "$ref" in schema:
            schema = self.root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        return schema


def _field_name(alternatives: Sequence[_Schema], part: str | int) -> str | int:
    """The field `schema` for the attribute `schema_`: pydantic reports a wrong default under its attribute's name."""
    if isinstance(part, str) and part.endswith("_"):
        fields = {name for schema in alternatives for name in schema.get("properties", {})}
        if part not in fields and part[:-1] in fields:
            return part[:-1]
    return part
