"""What a model is trained and scored on: texts, corpora, tokenizers, stored token ids and the batches cut from them."""
