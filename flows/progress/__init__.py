"""What a run shows while it goes on and keeps when it ends: terminal, tables, artifacts, run log."""
