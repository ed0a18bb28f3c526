"""The user's own Python files: which belong together, and how a function of one is loaded."""
