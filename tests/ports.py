"""Ports for servers that tests start."""

import socket


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])
