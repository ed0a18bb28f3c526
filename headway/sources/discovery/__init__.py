"""Finds the files of a source: formats, spans, and the spans of a window."""
