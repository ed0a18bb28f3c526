"""Raw files: finds spans, cuts a span into ranges, reads a range as Arrow batches."""
