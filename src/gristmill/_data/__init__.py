"""Records: where they are, in which order, what happens to one, and how many become one."""
