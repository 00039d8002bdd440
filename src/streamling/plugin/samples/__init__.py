"""Sample plugins: available without `plugin.path`, small enough to read, useful for trying things out.

They are loaded after all other plugins: a plugin with the id of a sample is used instead of it.
"""

MODULES = tuple(f"{__name__}.{name}" for name in ("filter_transform", "partitioned", "print_sink", "random_source"))
