"""SentencePiece models: read, trained as unigrams, applied, in pairs."""
