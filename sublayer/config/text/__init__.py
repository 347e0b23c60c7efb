"""What ``[data]`` names: corpora, tokenizers and the shares of a split."""
