"""The checks of `headway.validation.stage`: the schema, the label, drift, and hints about columns."""
