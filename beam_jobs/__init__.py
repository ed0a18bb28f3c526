"""Everything that runs on Apache Beam: ingest, batch prediction, and the choice of a runner. Importing it imports no Beam."""
