"""`training:` of pipeline.yaml, and the values chosen where it leaves keys out."""
