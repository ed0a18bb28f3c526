"""Evaluation of a trained model on a split, and its predictions."""
