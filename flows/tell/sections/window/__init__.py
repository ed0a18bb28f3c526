"""The data of a run in its report: rows and findings, the columns, their way through the spans, what goes together."""
