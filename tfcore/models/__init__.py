"""Built-in models, and models of a user's module."""
