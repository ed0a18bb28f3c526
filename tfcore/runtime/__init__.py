"""The process that runs TensorFlow: devices, imports, a user's code, a worker that serves requests."""
