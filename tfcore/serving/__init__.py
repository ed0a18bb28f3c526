"""Answers TensorFlow Serving's REST API for the champion: requests, micro-batches, reload, the log of requests."""
