"""Running steps: reuse of stored outputs, the TensorFlow process, a whole run."""
