"""Answers TensorFlow Serving's REST API for the champion: requests, limits, reload."""
