"""The `Metric` type, and every metric that evaluation reports and the gate compares by; in NumPy."""
