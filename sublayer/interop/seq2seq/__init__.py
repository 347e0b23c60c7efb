"""M2M100's and Marian's configs, weights and tokenizers."""
