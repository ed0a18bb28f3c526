"""Texts, tables and pages on runs: for the terminal, Prefect's artifacts, a run's report and the site of a store."""
