"""What several processes take to train one model: memory, traffic, time; devices as data."""
