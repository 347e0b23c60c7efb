"""Whether models score that a question has no answer alike, so that their scores are averaged."""

from collections.abc import Sequence

from sublayer.errors import ConfigError
from sublayer.model.transformer import Transformer


def check_heads(names: Sequence[str], models: Sequence[Transformer]) -> None:
    """Raise ConfigError where heads of spans score no answer in different ways.

    A joint head has a logit of its own for it; of independent ends it is by how much [CLS] is
    better than the best span. ``names`` are what messages call the models.
    """
    if not models[0].task.tasks[0].has_unanswerable:
        return
    kinds = ["independent" if model.joint_span_head is None else "joint" for model in models]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigError(
                f"{name} has a head of {kind} spans and {names[0]} one of {kinds[0]}: their scores "
                "of no answer are on different scales, and have no average"
            )
