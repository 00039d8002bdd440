"""What the settings file may be called."""

DEFAULT_NAME = "config"
SUFFIXES = ("", ".yaml", ".yml", ".json")
