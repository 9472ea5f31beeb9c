"""How long tests wait for what should happen."""

PATIENCE_S = 60.0
"""Only a test that fails waits so long, also where other programs keep the processors busy."""
