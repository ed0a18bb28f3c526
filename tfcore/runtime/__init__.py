"""The process that runs TensorFlow: devices, imports, the user's code, a worker that serves requests."""
