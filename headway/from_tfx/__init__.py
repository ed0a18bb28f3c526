"""A pipeline from TFX's schema, examples and preprocessing_fn."""
