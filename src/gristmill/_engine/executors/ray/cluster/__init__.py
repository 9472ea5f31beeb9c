"""The cluster: the connection to it, its nodes, and how many actors it has room for."""
