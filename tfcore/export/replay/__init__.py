"""The replay of an export by a process that has only TensorFlow and NumPy, and limits on what it measures."""
