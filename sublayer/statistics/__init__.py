"""Statistics of comparisons: numbers in, a judgement out; no PyTorch, no study."""
