"""What a pipeline needs on a Prefect server, and putting it there."""
