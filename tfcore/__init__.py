"""Everything that imports TensorFlow: transforms in the graph, input pipeline, training, evaluation, export.

Importing the package itself imports none of it, and the configs need no TensorFlow at all.
"""
