"""Everything that imports TensorFlow: transforms in the graph, input pipeline, training, evaluation, export.

Importing the package imports none of it; its modules do, and only the process of `tfcore.worker` imports those.
"""
