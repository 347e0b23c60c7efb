"""The objective causal: its loss, its batches and its scores."""
