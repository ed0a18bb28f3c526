"""Models of two towers: a vector of the user, one of the item, and the best items of an index."""
