"""One training step and many of them: losses, micro-batches, replicas, schedules, sampling."""
