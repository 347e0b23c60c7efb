"""The objective masked: its loss, its batches and its scores."""
