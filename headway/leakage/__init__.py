"""The leakage proof: checks that no key and no time is in two splits, and that equal rows are in one split."""
