"""Arrow columns: coercion, labels, splits, expressions, hashes, quarantine."""
