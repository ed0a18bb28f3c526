"""Stages on another worker: the flow's side, the worker's, and what they tell each other by the store."""
