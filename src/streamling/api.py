"""Run pipelines from a program.

import streamling

summary = streamling.run("pipeline.yaml")
summary.rows_of["out"]          # rows of a memory sink

with streamling.Session() as session:      # Java and Spark are started once
    session.run(first)
    session.run(second)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamling.engine.execution import Summary
    from streamling.engine.process.engine import Engine
    from streamling.spec.settings import Settings


def run(pipeline: str | os.PathLike[str], settings: Settings | Mapping[str, Any] | None = None) -> Summary:
    """Run a pipeline to its end, in this thread. Raises StreamlingError.

    pipeline   the path of a file or, if it has more than one line, the text of a pipeline
    settings   the application settings: an object, or a map of those that differ from their defaults; None loads them
               from the file and the environment, as the command line does
    """
    with Session(settings) as session:
        return session.run(pipeline)


class Session:
    """Runs pipelines one after the other in one Java process. Spark's settings are those of the session."""

    def __init__(self, settings: Settings | Mapping[str, Any] | None = None) -> None:
        self._settings = _settings(settings)
        self._engine: Engine | None = None

    def run(self, pipeline: str | os.PathLike[str], settings: Settings | Mapping[str, Any] | None = None) -> Summary:
        """Like `streamling.run`, with the settings of the session unless others are given."""
        from streamling.engine.process.engine import Engine
        from streamling.engine.process.session import spark_conf

        run_settings = self._settings if settings is None else _settings(settings)
        if self._engine is None:
            self._engine = Engine(spark_conf(self._settings.spark, application=self._settings.application_id))
        return _run(self._engine, _pipeline(pipeline), run_settings)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(engine: Engine, pipeline: Any, settings: Settings) -> Summary:
    """With the admin API and a warning about missing progress, as the command line has them."""
    from streamling.engine.execution import Execution
    from streamling.engine.protocol.health import Health, ProgressWatch
    from streamling.engine.protocol.progress import Progress
    from streamling.telemetry.inspection import samples_for

    progress = Progress()
    samples = samples_for(settings)
    execution = Execution(pipeline, settings, progress, samples)
    health = Health(progress, settings.progress_deadline_secs)
    with ProgressWatch(health, settings):
        if not settings.wants_admin_api:
            return execution.run(engine)
        from streamling.web.server import admin_api
        from streamling.web.view import RunView

        name = pipeline.name if isinstance(pipeline, Path) else str(pipeline)
        with admin_api(RunView(name, settings, execution, progress, health, samples), settings):
            return execution.run(engine)


def _pipeline(pipeline: str | os.PathLike[str]) -> Any:
    from streamling.spec.pipeline import PipelineText

    if isinstance(pipeline, str) and "\n" in pipeline:
        return PipelineText(pipeline)
    return Path(pipeline)


def _settings(settings: Settings | Mapping[str, Any] | None) -> Settings:
    from pydantic import ValidationError

    from streamling.errors import SETTING_INVALID, InvalidPipeline, UserError
    from streamling.spec.faults import faults
    from streamling.spec.settings import Settings, load_settings
    from streamling.spec.settings.application import check_settings

    if settings is None:
        return load_settings(config=None, environ=os.environ, cwd=Path.cwd()).settings
    try:
        given = settings if isinstance(settings, Settings) else Settings.model_validate(dict(settings))
    except ValidationError as error:
        raise InvalidPipeline(
            [UserError(SETTING_INVALID, fault.sentence) for fault in faults(error, Settings)]
        ) from error
    check_settings(given)
    return given
