"""Proof that no key or time is in two splits, and equal rows in one."""
