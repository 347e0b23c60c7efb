"""fairseq's checkpoints of translators."""
