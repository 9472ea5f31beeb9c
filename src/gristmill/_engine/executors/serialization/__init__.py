"""How plans, blocks, errors and logs travel between processes, on one machine or several."""
