"""Columns, their types and roles, and the schema file that freezes them."""
