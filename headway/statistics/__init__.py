"""Mergeable per-column statistics."""
