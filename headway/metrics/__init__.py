"""The `Metric` type, and every metric, in NumPy; `headway.tasks` says which are reported and compared by."""
