"""The commands on versions of a model: list, promote, roll back, compare, trace."""
