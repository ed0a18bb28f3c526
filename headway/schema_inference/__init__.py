"""What a column is, inferred from sampled values: type, role, identifier, text pattern."""
