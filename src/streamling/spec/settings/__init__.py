"""The application settings: everything that is not the pipeline."""

from streamling.spec.settings.application import LoadedSettings, Settings, load_settings, public_keys

__all__ = ["LoadedSettings", "Settings", "load_settings", "public_keys"]
