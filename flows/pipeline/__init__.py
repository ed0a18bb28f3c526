"""The work on a pipeline beside a run: tuning, backfills, monitoring of the champion, predictions."""
