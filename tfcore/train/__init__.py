"""Training: many steps in one compiled program, exact resume, early stopping on a holdout of the train rows."""
