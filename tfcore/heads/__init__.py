"""Tasks in TensorFlow: the loss per row, the predictions, the outputs that are served."""
