"""Where Beam pipelines run: on this machine, on Flink or Spark, on Dataflow."""
