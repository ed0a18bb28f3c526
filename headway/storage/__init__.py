"""Files, locks and outputs on a local disk or in a bucket."""
