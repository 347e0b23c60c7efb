"""How an example is written for a model: pairs of texts, a traversal, or text to text."""
