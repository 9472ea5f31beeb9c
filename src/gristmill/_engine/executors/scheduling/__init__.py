"""Order, look-ahead and assignment of tasks, without processes, sockets or clocks of its own."""
