"""The pages of the dashboard, a module each: from a store to plain values."""
