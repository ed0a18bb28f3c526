"""What the gate checks besides comparisons with the champion."""
