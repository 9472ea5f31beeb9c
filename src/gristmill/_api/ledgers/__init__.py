"""Ledgers: they record the steps of a run, which are computed again and audited from them."""
