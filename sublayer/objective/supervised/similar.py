"""Examples of similar lengths in batches, where their order is no matter."""

import numpy as np

from sublayer.data.arrays import Ints


def similar_batches(tokens: Ints, most_tokens: int) -> list[Ints]:
    """Put examples of similar lengths, ``[N]``, into batches of at most so many tokens."""
    order = np.argsort(tokens, kind="stable")
    batches = []
    first = 0
    total = 0
    for place, number in enumerate(order.tolist()):
        if total + tokens[number] > most_tokens and place > first:
            batches.append(order[first:place])
            first, total = place, 0
        total += int(tokens[number])
    if len(order):
        batches.append(order[first:])
    return batches
