"""The leakage proof: no key and no time is in two splits, and equal rows are in one."""
