"""What blocks compute with beside their input: layout, visible keys, cache, encoder output."""
