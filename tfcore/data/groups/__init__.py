"""Rows that belong together (the items of a query): ids, and batches that cut none."""
