"""The pipeline as data: an immutable tree of nodes. Building one reads and starts nothing."""
