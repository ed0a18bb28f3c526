"""The commands that look back on one run: why its steps ran, and what it reported."""
