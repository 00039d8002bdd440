"""Streamling: pipelines written in YAML, run on Spark, delivered exactly once."""

from streamling.api import Session, run

__version__ = "0.1.0"
__all__ = ["Session", "run"]
