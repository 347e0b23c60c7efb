"""Layers of settings: where they come from, how they merge, how they are checked."""
