"""Readers of raw files, one module for each format and its helpers."""
