"""Metrics of a run, and their labels."""
