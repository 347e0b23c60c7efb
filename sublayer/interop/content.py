"""The JSON config of another system's model, its fields checked one by one, and the activations by their names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sublayer.config.limits import LONGEST_WINDOW, MOST_HEADS
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop import values
from sublayer.interop.values import Rule, Unsayable, shown

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
_MISSING = object()


@dataclass(frozen=True)
class Content:
    """The fields of a file; what reads one raises CheckpointError, naming the file and the field."""

    file: str
    fields: Mapping[str, Any]

    def read(self, name: str, rule: Rule, default: Any = _MISSING) -> Any:
        """Read a field by its rule; one that is not there is ``default``, without which it must be there."""
        value = self.fields.get(name, default)
        if value is _MISSING:
            raise CheckpointError(f"{self.file} does not say {name}")
        try:
            return rule(value)
        except Unsayable as problem:
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: {name} = {shown(value)} ({problem})"
            ) from None
        except ValueError as problem:
            raise CheckpointError(f"{self.file}: {name} = {shown(value)} {problem}") from None

    def activation(self, name: str, default: str, known: Mapping[str, tuple[str, str]] = ACTIVATIONS) -> dict[str, str]:
        """Read an activation as the model's fields ffn and gelu."""
        ffn, gelu = known[self.read(name, values.one_of(known), default)]
        return {"ffn": ffn, "gelu": gelu}

    def refuse(self, names: Sequence[str]) -> None:
        """Raise CheckpointError where a field that a recipe has no equal for is switched on."""
        if named := [f"{name} = {shown(self.fields[name])}" for name in names if self.fields.get(name)]:
            raise CheckpointError(f"{self.file} asks for what a recipe cannot say: {', '.join(named)}")

    def whole(self, name: str, default: int | None = None, most: int = LONGEST_WINDOW) -> int:
        """Read a whole number from 1 to ``most``; without a default it must be there."""
        if default is not None and self.fields.get(name) is None:
            return default
        return int(self.read(name, values.whole(most)))

    def share(self, name: str, default: float) -> float:
        """Read a probability of dropping."""
        return float(self.read(name, values.share, default))

    def flag(self, name: str, default: bool = True) -> bool:
        """Read true or false; a field that is not there is ``default``."""
        return bool(self.read(name, values.flag, default))

    def heads(self, name: str, width_name: str, width: int) -> int:
        """Read a number of heads, which must divide the model's width."""
        n_heads = self.whole(name, most=MOST_HEADS)
        if width % n_heads:
            raise CheckpointError(f"{self.file}: {name} = {n_heads} does not divide {width_name} = {width}")
        return n_heads

    def resolve(self, fields: Mapping[str, Any], *, context: int = 1) -> ModelConfig:
        """Build a resolved model config of the model's fields that were read."""
        try:
            config = ModelConfig.model_validate(fields)
            return resolve_model(config, vocab_size=fields["vocab_size"], context=context)
        except ValidationError as problem:
            first = problem.errors()[0]
            named = f"model.{'.'.join(map(str, first['loc']))} = {shown(first['input'])}"
            raise CheckpointError(f"{self.file} asks for what a recipe cannot say: {named}: {first['msg']}") from None
        except ConfigError as problem:
            raise CheckpointError(f"{self.file} asks for what a recipe cannot say: {problem}") from None


def activation_name(ffn: str, gelu: str) -> str:
    """Give transformers' name of an activation; ``gelu`` counts only where it is one."""
    names = {pair: name for name, pair in reversed(ACTIVATIONS.items())}
    return names[ffn, gelu if ffn == "gelu" else "tanh"]
