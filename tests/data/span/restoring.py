"""The text of an input and its target, put together again."""

from collections.abc import Sequence


def restore(inputs: Sequence[int], targets: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """Put the text of an input and its target together again; neither has its end.

    Without sentinels one follows the other. A sentinel of the input for which the target has
    nothing leaves a gap without text.
    """
    if not sentinels:
        return [*inputs, *targets]
    parts = split_at_sentinels(targets, sentinels)
    # Where the input begins with what is not noise, so does the target with its sentinel.
    begins_with_noise = bool(inputs) and inputs[0] in sentinels
    if not begins_with_noise:
        parts = parts[1:]
    rest = iter(parts)
    restored: list[int] = []
    names = set(sentinels)
    for id_ in inputs:
        if id_ in names:
            restored += next(rest, [])
        else:
            restored.append(id_)
    return restored


def split_at_sentinels(ids: Sequence[int], sentinels: Sequence[int]) -> list[list[int]]:
    """Split ids at sentinels: what is before the first one, and what follows each."""
    names = set(sentinels)
    parts: list[list[int]] = [[]]
    for id_ in ids:
        if id_ in names:
            parts.append([])
        else:
            parts[-1].append(id_)
    return parts
