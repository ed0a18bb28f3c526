"""How a run ended and what it did, told for the terminal, Prefect's artifacts, the report of a run and the site of a store."""
