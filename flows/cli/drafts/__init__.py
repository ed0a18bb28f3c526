"""Commands that write a pipeline."""
