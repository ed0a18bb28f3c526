"""The steps of a pipeline, from ingest to promotion, and what each needs of the ones before."""
