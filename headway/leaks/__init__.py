"""Proof that the splits of a window keep rows apart: what ingest notes of each row, and what is made of the notes."""
