"""What the objectives of encoder-decoders share: the loss of targets, and random ones."""
