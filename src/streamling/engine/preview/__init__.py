"""Previews: the first rows of every node of a pipeline, which may be unfinished.

No sink, no dead-letter destination and no state is opened, no consumer group is joined, and nothing that moves on with
finalized epochs hears of them. So a preview may run next to the pipeline.
"""

from streamling.engine.preview.preview import Preview, preview_settings
from streamling.engine.preview.result import End, LiveRows, NodePreview, PreviewOptions

__all__ = ["End", "LiveRows", "NodePreview", "Preview", "PreviewOptions", "preview_settings"]
