"""What users see of a run: reports, traces, progress, and a socket for other processes."""
