"""What ``init.freeze`` names: the parts of a start that training leaves as they are."""

from dataclasses import dataclass

from sublayer.config.architecture.stacks import slot, stacks
from sublayer.config.model import ModelConfig
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD

EMBEDDINGS = "embeddings"
_LAYERS = "layers:"


@dataclass(frozen=True)
class Frozen:
    """Parts of a model."""

    embeddings: bool = False
    """All that stands before the first block."""
    n_layers: int = 0
    """How many blocks, the first ones."""

    def __bool__(self) -> bool:
        """Return whether anything is named."""
        return self.embeddings or self.n_layers > 0

    def __str__(self) -> str:
        """Return the parts in words."""
        parts = [EMBEDDINGS] if self.embeddings else []
        if self.n_layers:
            blocks = "first block" if self.n_layers == 1 else f"first {self.n_layers} blocks"
            parts.append(f"the {blocks}")
        return " and ".join(parts)


NOTHING = Frozen()


def parse_freeze(words: str | tuple[str, ...]) -> Frozen:
    """Read ``embeddings``, ``layers:k``, or both. Raises ConfigError for anything else."""
    embeddings, n_layers = False, 0
    named: set[str] = set()
    for word in (words,) if isinstance(words, str) else words:
        part, _, number = word.partition(":")
        if part in named:
            raise ConfigError(f"init.freeze names {part} twice: give it once")
        named.add(part)
        if word == EMBEDDINGS:
            embeddings = True
        elif word.startswith(_LAYERS) and number.isascii() and number.isdigit() and int(number):
            n_layers = int(number)
        else:
            raise ConfigError(
                f"init.freeze = {word[:LONGEST_WORD]!r} is neither embeddings nor layers:K, the "
                "first K blocks, such as layers:2"
            )
    return Frozen(embeddings, n_layers)


def check_frozen(model: ModelConfig, frozen: Frozen, taken: int | None) -> None:
    """Raise ConfigError where a model has no such parts, or they cannot stay as they are.

    ``taken`` is ``init.layers``: how many blocks come from the start, None all of them.
    """
    n_frozen = frozen.n_layers
    if not n_frozen:
        return
    asked = f"init.freeze = layers:{n_frozen}"
    if model.kind == "encoder-decoder":
        raise ConfigError(
            f"{asked} names the first blocks of a stack, and model.kind = {model.kind} has two: "
            "leave it out, or give init.freeze=embeddings"
        )
    n_there = model.n_layers if taken is None else taken
    if n_frozen > n_there:
        what = "the model" if taken is None else f"the start that init.layers = {taken} takes"
        raise ConfigError(f"{asked} is more than the {count(n_there, 'block')} of {what}")
    last = _last_of_same_weights(model, n_frozen)
    if last > n_frozen:
        raise ConfigError(
            f"{asked}, but later blocks have the same weights (model.share = {model.share}): give "
            f"layers:{last}, or leave it out"
        )


def _last_of_same_weights(model: ModelConfig, n_frozen: int) -> int:
    """Return how many first blocks have weights of their own, if they are at least ``n_frozen``."""
    (stack,) = stacks(model)
    last = n_frozen
    # A further block may bring others that share with it.
    for _ in range(stack.n_layers):
        for entry in stack.block:
            slots = [slot(model, stack, layer, entry) for layer in range(stack.n_layers)]
            taken = set(slots[:last])
            last = max(layer + 1 for layer, used in enumerate(slots) if used in taken)
    return last


def n_frozen_sets(model: ModelConfig, n_frozen: int) -> list[int]:
    """Count for each sub-layer of a block the sets of weights that the first blocks use."""
    (stack,) = stacks(model)
    return [
        len({slot(model, stack, layer, entry) for layer in range(n_frozen)})
        for entry in stack.block
    ]
