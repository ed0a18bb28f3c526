"""Commands about the command line itself: completion."""
