"""Drafts a first pipeline from data alone: source, label, columns, split, and the text of pipeline.yaml."""
