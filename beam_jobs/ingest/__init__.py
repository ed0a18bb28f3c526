"""Ingest: the raw files of one span become sharded TFRecords, statistics and a quarantine."""
