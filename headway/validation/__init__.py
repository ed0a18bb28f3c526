"""The validation stage and its checks: the schema, the label, drift, leaks, and units with rows in two splits."""
