"""Signs that columns are known after the label only, or that rows nearly repeat each other."""
