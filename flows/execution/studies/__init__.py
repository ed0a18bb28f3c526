"""Several runs of a pipeline that answer one question: tune."""
