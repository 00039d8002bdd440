"""The application settings: everything that is not the pipeline."""

from streamling.spec.settings.application import LoadedSettings, Settings, load_settings

__all__ = ["LoadedSettings", "Settings", "load_settings"]
