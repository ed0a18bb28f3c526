"""pipeline.yaml as one validated config, and the columns that it selects."""
