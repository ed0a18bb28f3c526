"""What happens beside the steps of a training: checkpoints, early stopping, history, summaries, control file."""
