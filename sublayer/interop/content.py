"""The JSON config of another system's model, its fields checked one by one, and the activations by their names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.errors import CheckpointError

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


@dataclass(frozen=True)
class Content:
    """The fields of a file; what reads one raises CheckpointError, naming the file and the field."""

    file: str
    fields: Mapping[str, Any]

    def activation(self, name: str, default: str, known: Mapping[str, tuple[str, str]] = ACTIVATIONS) -> dict[str, str]:
        """Read an activation as the model's fields ffn and gelu."""
        value = self.fields.get(name, default)
        if not isinstance(value, str) or value not in known:
            raise CheckpointError(f"{self.file}: {name} = {value!r} is not one of {', '.join(known)}")
        ffn, gelu = known[value]
        return {"ffn": ffn, "gelu": gelu}

    def refuse(self, names: Sequence[str]) -> None:
        """Raise CheckpointError where a field that a recipe has no equal for is switched on."""
        if named := [f"{name} = {self.fields[name]!r}" for name in names if self.fields.get(name)]:
            raise CheckpointError(f"{self.file} asks for what a recipe cannot say: {', '.join(named)}")

    def whole(self, name: str, default: int | None = None) -> int:
        """Read a whole number of at least 1; without a default it must be there."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{self.file}: {name} = {value!r} is not a whole number of at least 1")
        return value

    def share(self, name: str, default: float) -> float:
        """Read a probability of dropping."""
        value = self.fields.get(name, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise CheckpointError(f"{self.file}: {name} = {value!r} is not a number of at least 0 and less than 1")
        return float(value)

    def positive(self, name: str, default: float) -> float:
        """Read a finite number greater than 0."""
        value = self.fields.get(name, default)
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise CheckpointError(f"{self.file}: {name} = {value!r} is not a number greater than 0")
        return float(value)

    def flag(self, name: str, default: bool = True) -> bool:
        """Read true or false; a field that is not there is ``default``."""
        value = self.fields.get(name, default)
        if type(value) is not bool:
            raise CheckpointError(f"{self.file}: {name} = {value!r} is not true or false")
        return value

    def heads(self, name: str, default: int | None, width_name: str, width: int) -> int:
        """Read a number of heads, which must divide the model's width."""
        n_heads = self.whole(name, default)
        if width % n_heads:
            raise CheckpointError(f"{self.file}: {name} = {n_heads} does not divide {width_name} = {width}")
        return n_heads


def activation_name(ffn: str, gelu: str) -> str:
    """Give transformers' name of an activation; ``gelu`` counts only where it is one."""
    names = {pair: name for name, pair in reversed(ACTIVATIONS.items())}
    return names[ffn, gelu if ffn == "gelu" else "tanh"]
