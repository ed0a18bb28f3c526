"""A run, a comparison of two, or a version in words, tables and figures: as text, Markdown, HTML and JSON."""
