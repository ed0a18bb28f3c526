"""Commands for a pipeline that runs by itself: deployments on a Prefect server, and its flows typed without one."""
