"""Callbacks of a training: checkpoints, early stopping, history, summaries, trials."""
