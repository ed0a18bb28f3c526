"""The sections of a run's report, each from what its stages left."""
