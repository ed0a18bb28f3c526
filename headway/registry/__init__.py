"""Model versions and promotion, and the removal of what nothing needs any more."""
