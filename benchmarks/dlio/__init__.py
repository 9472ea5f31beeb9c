"""DLIO, the engine behind MLPerf Storage, with gristmill as its data loader: `make dlio`."""
