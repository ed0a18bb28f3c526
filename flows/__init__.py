"""The application: command line, config, the DAG of stages, its execution, Prefect flows, child processes.

Importing it imports nothing else; name the module you want.
"""
