"""Losses over the pairs of each group (the items of a query, the offers of a day) and over a batch's items; a
task's losses per row are in `tfcore.heads.losses`.

pairwise_loss(scores, labels, row_splits=[0, 3, 3, 8], kind="lambdarank", k=10)     # float32 [groups]
group_splits(query_ids)                                                             # row_splits of sorted ids
"""
