"""Infers a column's type, role and text pattern from sampled values."""
