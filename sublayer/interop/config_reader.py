"""The JSON config of another system's model, its fields checked one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sublayer.config.limits import LONGEST_WINDOW, MOST_HEADS
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop import values
from sublayer.interop.activations import activation_fields
from sublayer.interop.values import Rule, Unsayable, format_value

_MISSING = object()


@dataclass(frozen=True)
class Content:
    """The fields of a file. What reads one raises CheckpointError that names both.

    So it does where a field is missing that has no default, is none of its kind, or asks for what a
    recipe cannot say; the message tells which.
    """

    file: str
    """The name that messages have for it."""
    fields: Mapping[str, Any]

    def read(self, name: str, rule: Rule, default: Any = _MISSING) -> Any:
        """Read a field by its rule; a missing one is ``default``, without which it is refused.

        The default goes by the rule as well.
        """
        value = self.fields.get(name, default)
        if value is _MISSING:
            raise CheckpointError(f"{self.file} does not say {name}")
        try:
            return rule(value)
        except Unsayable as problem:
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: "
                f"{name} = {format_value(value)} ({problem})"
            ) from None
        except ValueError as problem:
            raise CheckpointError(
                f"{self.file}: {name} = {format_value(value)} {problem}"
            ) from None

    def activation(
        self, name: str, default: str, known: Mapping[str, tuple[str, str]]
    ) -> dict[str, str]:
        """Read an activation, of those ``known`` by name, as the model's fields ffn and gelu.

        ``known`` tells the activation and the form of a GELU that each name means.
        """
        named = self.read(name, values.one_of(known), default)
        activation, gelu = known[named]
        return activation_fields(activation, gelu)

    def refuse(self, names: Sequence[str]) -> None:
        """Raise CheckpointError where a field that a recipe has no equal for is switched on.

        All of ``names`` that are on are in the message; missing, null, false and 0 are off.
        """
        named = []
        for name in names:
            value = self.fields.get(name)
            if value:
                named.append(f"{name} = {format_value(value)}")
        if named:
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: {', '.join(named)}"
            )

    def whole(self, name: str, default: int | None = None, most: int = LONGEST_WINDOW) -> int:
        """Read a whole number from 1 to ``most``; without a default it must be there.

        With one, null is the default too.
        """
        if default is not None and self.fields.get(name) is None:
            return default
        return int(self.read(name, values.whole(most)))

    def share(self, name: str, default: float) -> float:
        """Read a probability of dropping, from 0 to less than 1."""
        return float(self.read(name, values.share, default))

    def flag(self, name: str, default: bool = True) -> bool:
        """Read true or false; a field that is not there is ``default``."""
        return bool(self.read(name, values.flag, default))

    def heads(self, name: str, width_name: str, width: int) -> int:
        """Read a number of heads, which must divide the model's width.

        ``width_name`` is what the file calls that.
        """
        n_heads = self.whole(name, most=MOST_HEADS)
        if width % n_heads:
            raise CheckpointError(
                f"{self.file}: {name} = {n_heads} does not divide {width_name} = {width}"
            )
        return n_heads

    def resolve(self, fields: Mapping[str, Any], *, context: int = 1) -> ResolvedModel:
        """Build a resolved model config of the model's fields that were read.

        ``context`` is what settles a ``max_len`` that ``fields`` leave open.

        Raises CheckpointError where they are no model that a recipe can say.
        """
        try:
            config = ModelConfig.model_validate(fields)
            return resolve_model(config, vocab_size=fields["vocab_size"], context=context)
        except ValidationError as problem:
            first = problem.errors()[0]
            parts = [str(part) for part in first["loc"]]
            field = ".".join(parts)
            named = f"model.{field} = {format_value(first['input'])}"
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: {named}: {first['msg']}"
            ) from None
        except ConfigError as problem:
            raise CheckpointError(
                f"{self.file} asks for what a recipe cannot say: {problem}"
            ) from None
