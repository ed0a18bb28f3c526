"""Inspection of one training step, for `headway debug step`."""
