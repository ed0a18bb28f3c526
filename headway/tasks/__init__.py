"""Tasks: how a label is read, the shape of its predictions, and the metrics that judge them; in NumPy."""
