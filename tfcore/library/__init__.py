"""Training in one call, on rows in memory or in files: `tfcore.fit`."""
