"""The objective translation: its loss, its batches and its scores."""
