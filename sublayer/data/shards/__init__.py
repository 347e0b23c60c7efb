"""Text turned into stored ids in shards, by several processes."""
