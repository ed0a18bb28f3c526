"""pipeline.yaml as one checked config, and the columns that it chooses."""
