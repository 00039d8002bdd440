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
    """The text of the pipeline, the preprocessors that have run, and those that no plugin provides."""

    text: str
    ran: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def cautions(self) -> list[Caution]:
        return [
            Caution(KIND_NOT_AVAILABLE, f"preprocessor '{id_}' is not available and is skipped") for id_ in self.skipped
        ]

    def unresolved(self) -> dict[tuple[Role, str], str]:
        """Kinds that a preprocessor would have replaced, with the reason why they are still there."""
        if not self.skipped:
            return {}
        return {(Role.SOURCE, "dataset"): f"preprocessors that are not available: {', '.join(self.skipped)}"}


def preprocess(text: str, settings: Settings) -> PreprocessedText:
    """The text after all preprocessors of the settings, each applied to the result of the last. Raises UserError."""
    ran, skipped = [], []
    application = Application.of(settings)
    for id_ in settings.plugin.preprocessor_ids:
        registration = find(id_, PluginKind.PREPROCESSOR)
        if registration is None:
            skipped.append(id_)
            continue
        ran.append(id_)
        text = _apply(registration, text, settings.plugin.preprocessor_options.get(id_, {}), application)
    return PreprocessedText(text, tuple(ran), tuple(skipped))


def _apply(registration: Registration, text: str, options: dict[str, str], application: Application) -> str:
    context = PluginContext(registration.id, application_id=application.id, store=no_state)
    try:
        plugin = registration.target(context, application.options_for(registration.id, options))
        result = resolve(plugin.preprocess_topology(text))
        if not isinstance(result, str):
            raise TypeError(f"preprocess_topology returned {type(result).__name__}, not text")
    except Exception as error:
        message = f"preprocessor '{registration.id}' failed: {message_of(error)}"
        raise UserError(PLUGIN_FAILED, message, cause=error) from error
    return result
