"""Decoding: sampling, beam search, and a step for one token at a time."""
