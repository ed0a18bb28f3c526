"""What is told of a run to machines: JSON log lines, OpenTelemetry traces and metrics, events for other programs."""
