"""Figures of a report, drawn as SVG."""
