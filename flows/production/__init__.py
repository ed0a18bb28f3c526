"""What goes on after the first run, without a server: backfills, new spans, their predictions, a watch over the champion."""
