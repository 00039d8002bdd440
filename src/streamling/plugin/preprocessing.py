"""Preprocessors: plugins that rewrite the text of a pipeline before it is read."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.errors import KIND_NOT_AVAILABLE, PLUGIN_FAILED, Caution, UserError
from streamling.plugin.application import Application, no_state
from streamling.plugin.context import PluginContext
from streamling.plugin.failures import message_of
from streamling.plugin.nodes.instance import resolve
from streamling.plugin.registration import PluginKind, Registration, find
from streamling.spec.pipeline import Role
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class PreprocessedText:
    """The text to be read, which preprocessors have run, and which nobody provides."""

    text: str
    ran: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def cautions(self) -> list[Caution]:
        return [
            Caution(KIND_NOT_AVAILABLE, f"preprocessor '{id_}' is not available and is skipped") for id_ in self.skipped
        ]

    def unresolved(self) -> dict[tuple[Role, str], str]:
        """Kinds that only stand for others until a preprocessor has run, with the reason why they are still there."""
        if not self.skipped:
            return {}
        return {(Role.SOURCE, "dataset"): f"preprocessors that are not available: {', '.join(self.skipped)}"}


def preprocess(text: str, settings: Settings) -> PreprocessedText:
    """The text as the preprocessors of the settings make it, each from what the one before gave. Raises UserError."""
    ran, skipped = [], []
    application = Application.of(settings)
    for id_ in settings.plugin.preprocessor_ids:
        found = find(id_, PluginKind.PREPROCESSOR)
        if found is None:
            skipped.append(id_)
            continue
        ran.append(id_)
        text = _applied(found, text, settings.plugin.preprocessor_options.get(id_, {}), application)
    return PreprocessedText(text, tuple(ran), tuple(skipped))


def _applied(found: Registration, text: str, options: dict[str, str], application: Application) -> str:
    context = PluginContext(found.id, application_id=application.id, store=no_state)
    try:
        given = resolve(found.target(context, application.options_for(found.id, options)).preprocess_topology(text))
        if not isinstance(given, str):
            raise TypeError(f"preprocess_topology gave {type(given).__name__}, not text")
    except Exception as error:
        raise UserError(PLUGIN_FAILED, f"preprocessor '{found.id}' failed: {message_of(error)}", cause=error) from error
    return given
