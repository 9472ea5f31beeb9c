"""Sources of records in memory."""
