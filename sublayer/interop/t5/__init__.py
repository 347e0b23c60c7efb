"""The config and the weights of T5, as transformers names them."""
