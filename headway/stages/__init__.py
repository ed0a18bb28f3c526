"""Stages as classes of fields: what a stage reads, what its output depends on, and what it answers."""
