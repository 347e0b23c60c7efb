"""Fields of another system's JSON config, checked one by one, and the activations by their names there."""

from collections.abc import Mapping, Sequence
from typing import Any

from sublayer.errors import CheckpointError

Content = Mapping[str, Any]

# transformers' activation -> (model.ffn, model.gelu). The two tanh forms are one formula.
ACTIVATIONS: dict[str, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}
FFNS = sorted({ffn for ffn, _ in ACTIVATIONS.values()})


def activation(content: Content, name: str, default: str) -> tuple[str, str]:
    """Read an activation as model.ffn and model.gelu."""
    value = content.get(name, default)
    if value not in ACTIVATIONS:
        raise CheckpointError(f"config.json: {name} = {value!r} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def activation_name(ffn: str, gelu: str) -> str:
    """Give transformers' name of an activation; ``gelu`` counts only where it is one."""
    names = {pair: name for name, pair in reversed(ACTIVATIONS.items())}
    return names[ffn, gelu if ffn == "gelu" else "tanh"]


def refuse(content: Content, names: Sequence[str]) -> None:
    """Raise CheckpointError where a field that a recipe has no equal for is switched on."""
    if named := [f"{name} = {content[name]!r}" for name in names if content.get(name)]:
        raise CheckpointError(f"config.json asks for what a recipe cannot say: {', '.join(named)}")


def whole(content: Content, name: str, default: int) -> int:
    """Read a whole number of at least 1."""
    value = content.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 1:
        raise CheckpointError(f"config.json: {name} = {value!r} is not a whole number of at least 1")
    return value


def share(content: Content, name: str, default: float) -> float:
    """Read a probability of dropping."""
    value = content.get(name, default)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise CheckpointError(f"config.json: {name} = {value!r} is not a number of at least 0 and less than 1")
    return float(value)


def positive(content: Content, name: str, default: float) -> float:
    """Read a finite number greater than 0."""
    value = content.get(name, default)
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise CheckpointError(f"config.json: {name} = {value!r} is not a number greater than 0")
    return float(value)


def flag(content: Content, name: str, *, default: bool = True) -> bool:
    """Read true or false."""
    value = content.get(name, default)
    if type(value) is not bool:
        raise CheckpointError(f"config.json: {name} = {value!r} is not true or false")
    return value


def heads(content: Content, n_name: str, n_default: int, width_name: str, width: int) -> int:
    """Read a number of heads, which must divide the model's width."""
    n_heads = whole(content, n_name, n_default)
    if width % n_heads:
        raise CheckpointError(f"config.json: {n_name} = {n_heads} does not divide {width_name} = {width}")
    return n_heads
