"""Arguments that several commands share, and what they lead to."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from streamling.cli.logs import start_logging
from streamling.spec.settings import LoadedSettings, load_settings


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="NAME", help="application configuration file (default: ./config.yaml, if any)"
    )
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="more logs, Spark's own included")
    loudness.add_argument("-q", "--quiet", action="store_true", help="warnings and errors only")
    parser.add_argument("--traceback", action="store_true", help="show stack traces of errors")


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="pipeline file (default: ./pipeline.yaml)")


def add_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--probe", action="store_true", help="also look up the columns of sources in registries, files and databases"
    )


def settings_of(options: argparse.Namespace, *, level: str = "info") -> LoadedSettings:
    """Load the settings and start logging as they and the arguments say."""
    loaded = load_settings(config=options.config, environ=os.environ, cwd=Path.cwd())
    wanted = "debug" if options.verbose else "warn" if options.quiet else os.environ.get("RUST_LOG", level)
    start_logging(format_=loaded.settings.log_format, level=wanted)
    return loaded


def pipeline_file(options: argparse.Namespace, loaded: LoadedSettings) -> Path:
    return Path(options.file or loaded.settings.pipeline_definition_location)
