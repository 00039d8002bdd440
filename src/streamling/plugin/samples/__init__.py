"""Sample plugins: there without `plugin.path`, small enough to be read, useful for trying things out.

A plugin loaded by path with one of their ids takes the sample's place.
"""

from importlib import import_module

from streamling.plugin.registration import Origin, Provenance, loading

for _name in ("filter_transform", "partitioned", "print_sink", "random_source"):
    with loading(Origin(Provenance.SAMPLE, f"{__name__}.{_name}")):
        import_module(f"{__name__}.{_name}")
