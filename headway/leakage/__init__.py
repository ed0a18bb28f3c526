"""Proof that no row, key or time is in two splits."""
