"""The application that plugins are loaded for: what they know about it before a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamling.connector import KeyValues
from streamling.errors import STATE_UNREADABLE, UserError
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class Application:
    """Its name, and its settings for plugins by the plugin's name."""

    id: str = Settings.model_fields["application_id"].default
    plugin_settings: Mapping[str, Mapping[str, Secret]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Application:
        return cls(settings.application_id, settings.plugin.own)

    def options_for(self, id_: str, options: Mapping[str, str]) -> dict[str, str]:
        """The options of a node, overridden by the settings `plugin.<name>.<key>`, where the name is the plugin's id.

        Characters of the id other than letters and digits are underscores there; keys ignore case.
        """
        own = self.plugin_settings.get(re.sub(r"[^a-z0-9]", "_", id_.lower()), {})
        values = {key: secret.reveal() for key, secret in own.items()}
        merged = {name: values.pop(name.lower(), text) for name, text in options.items()}
        return merged | values


def no_state() -> KeyValues:
    raise UserError(STATE_UNREADABLE, "state can be used from initialize() on, not in the constructor")
