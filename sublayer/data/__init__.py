"""Training and evaluation data: texts, corpora, tokenizers, stored token ids, batches."""
