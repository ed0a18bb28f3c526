CREATE EXTENSION IF NOT EXISTS pg_trgm;  -- Prefect searches its tables with it
