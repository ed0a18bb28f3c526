"""The command line: `headway COMMAND`."""
