"""Which files a source has: formats, spans, and the spans of a window."""
