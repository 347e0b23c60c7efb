"""What ``[model]`` composes: the notation of a block, and a row for each part that it may name."""
