"""Batch prediction: raw files scored with an exported model, range by range."""
