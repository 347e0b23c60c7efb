"""``sublayer generate``: its options, continuations as they grow, gaps filled."""
