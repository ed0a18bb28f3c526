"""The data of a run in its report: rows and findings, the columns, their drift through the spans."""
