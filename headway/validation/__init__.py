"""The checks behind `headway.validate`: the schema, the label, drift, and hints about columns."""
