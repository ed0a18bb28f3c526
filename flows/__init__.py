"""What joins the other packages: the command line, the stages, their order, Prefect flows, child processes.

Importing it imports nothing else; name the module you want.
"""
