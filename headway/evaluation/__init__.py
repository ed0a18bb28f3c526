"""Metrics, confidence intervals and the gate: whether a candidate may be promoted."""
