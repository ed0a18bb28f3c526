"""Proof that no row, key or time stands in two splits."""
