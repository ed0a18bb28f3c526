"""Raw files: which spans there are, how a span is cut into ranges, how a range is read as Arrow batches."""
