"""What a task is: how its label is read, what its predictions look like, which metrics judge them; in NumPy."""
