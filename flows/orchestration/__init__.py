"""Prefect on this machine: server, work pool, worker, deployments, and runs that are lost."""
