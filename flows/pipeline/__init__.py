"""One run of a pipeline: its context, its DAG of steps, and what they leave."""
