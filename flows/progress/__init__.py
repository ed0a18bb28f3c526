"""What listens to a run while it goes on: the terminal, its log file, MLflow."""
