"""Outputs of a model by head; fillings of masks."""

from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor


class Output(dict[str, Tensor]):
    """Outputs of a model's heads, by name; logits are unnormalised log-probabilities.

    Includes the pooled vector of each text ``[B, D]``, as ``output["pooler"]``.
    """

    @property
    def logits(self) -> Float[Tensor, "B T V"]:
        """Vocabulary logits: of the next token in a decoder, of each position in an encoder."""
        return self["vocabulary"]

    @property
    def sentence_logits(self) -> Float[Tensor, "B C"] | None:
        """Logits of "not consecutive" for text pairs; None without a sentence head.

        With two classes the second; with one, a positive logit.
        """
        return self.get("sentence")


@dataclass(frozen=True)
class Filling:
    """A filling of one mask."""

    text: str
    """The text in the mask's place, without white space around it."""
    probability: float
    """Of an encoder: of the token among all of the vocabulary, the other masks unfilled. Of a T5:
    of all that hypotheses of a beam write which fill the gap so, at least."""
    completed: str
    """The whole text: by an encoder with the likeliest fillings of all other masks, by a T5 with
    those that it wrote beside this one."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)
