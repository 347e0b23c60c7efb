"""What calling a model returns: the output of each of its heads, by the head's name."""

from jaxtyping import Float
from torch import Tensor


class Output(dict[str, Tensor]):
    """The outputs of a model's heads, by name; logits are unnormalised log-probabilities.

    What a pooler makes of each text ``[B, D]`` is there too, as ``output["pooler"]``.
    """

    @property
    def logits(self) -> Float[Tensor, "B T V"]:
        """The vocabulary head's: of the next token in a decoder, of each position in an encoder."""
        return self["vocabulary"]

    @property
    def sentence_logits(self) -> Float[Tensor, "B C"] | None:
        """Whether a pair's second text does not follow its first; None without such a head.

        Of two classes the second says that it does not; of one, a positive logit.
        """
        return self.get("sentence")
