"""Training on several devices and machines."""
