"""What happened: counters that the engine writes and users read."""
