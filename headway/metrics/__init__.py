"""What a metric is, and every metric that evaluation reports and the gate compares by; in NumPy."""
