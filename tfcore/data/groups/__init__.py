"""Groups of rows, such as the items of a query: their ids, and batches that never split a group."""
