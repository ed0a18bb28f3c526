"""The results of an evaluation, from kept predictions: metrics with intervals, tables, a threshold, the worst slices."""
