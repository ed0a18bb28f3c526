"""Two versions of a model, or two runs, beside each other: as a value, as text, as a page with figures."""
