"""The gaps of a text, filled by an encoder-decoder."""
