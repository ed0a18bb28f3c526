"""Everything that runs on Apache Beam: ingest, batch prediction, the choice of a runner. This package alone imports no Beam."""
