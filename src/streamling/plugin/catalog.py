"""The list of plugins, for users and programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from streamling.plugin.loading import load_plugins
from streamling.plugin.registration import Provenance, registrations
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin.

    id       what `type:`, a setting or SQL calls it
    kind     `source`, `transform`, `sink`, `preprocessor`, `side output` or `function`
    place    the file, the entry point or the module it comes from
    source   `built-in sample`, `path`, `entry point` or `code`
    doc      the first line of its documentation
    """

    id: str
    kind: str
    place: str
    source: str
    doc: str
    partitioned: bool = False
    sample: bool = False

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def plugins(settings: Settings | None = None) -> list[PluginRow]:
    """All plugins of an application with these settings, by id, functions last. Raises UserError as a run would."""
    load_plugins(settings or Settings())
    return [
        PluginRow(
            r.id,
            r.kind.value,
            r.origin.place,
            r.origin.provenance.value,
            r.doc,
            r.partitioned,
            r.origin.provenance is Provenance.SAMPLE,
        )
        for r in registrations()
    ]
