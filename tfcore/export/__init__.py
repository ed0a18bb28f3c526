"""SavedModels with signatures, their metadata, and the check that they predict as in training."""
