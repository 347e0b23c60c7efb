"""The machine and its operating system: memory, threads, signals, streams, locks."""
