"""Plugins as nodes of a pipeline: how they are planned, and how the engine drives them."""
