"""The report of a run: one HTML file with figures, made from what the store holds."""
