"""YAML as a tree in which every value remembers its place in the file."""

from streamling.spec.yaml.tree import Entry, ListNode, MapNode, Node, ScalarNode, compose, described, load

__all__ = ["Entry", "ListNode", "MapNode", "Node", "ScalarNode", "compose", "described", "load"]
