"""The names that the settings file may have."""

DEFAULT_NAME = "config"
SUFFIXES = ("", ".yaml", ".yml", ".json")
