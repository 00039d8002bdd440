"""YAML as a tree in which every value has its position in the file."""

from streamling.spec.yaml.tree import ListNode, MapEntry, MapNode, Node, ScalarNode, compose, describe, load

__all__ = ["ListNode", "MapEntry", "MapNode", "Node", "ScalarNode", "compose", "describe", "load"]
