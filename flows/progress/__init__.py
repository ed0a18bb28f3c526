"""Reports of a run: terminal output, tables, Prefect artifacts."""
