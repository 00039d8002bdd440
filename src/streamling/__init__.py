"""Streamling: pipelines written in YAML, run on Spark, delivered exactly once."""

__version__ = "0.1.0"
