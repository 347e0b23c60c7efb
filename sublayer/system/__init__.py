"""Machine and operating system: memory, processes, signals, terminal, progress display."""
