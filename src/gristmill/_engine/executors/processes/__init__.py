"""Worker processes on this machine: their start, their messages, their memory and their end."""
