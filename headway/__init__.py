"""The base package: config, sources, schema, statistics, records, store, registry, gate. No TensorFlow, Beam or Prefect."""
