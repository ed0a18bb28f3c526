"""Beam jobs: raw files to sharded TFRecords. The only package that imports Apache Beam, and only once a job runs."""
