"""Pages in HTML about a run, without scripts."""
