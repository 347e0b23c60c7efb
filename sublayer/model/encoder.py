"""An encoder: each token sees both sides of it; what was masked is predicted, pairs are judged."""

from jaxtyping import Bool, Int
from torch import Tensor

from sublayer.model.context.layout import Layout
from sublayer.model.output import Output
from sublayer.model.transformer import Transformer


class Encoder(Transformer):
    """Token ids in, logits of the token at each position out, and those of a pair of texts.

    Source: Devlin et al. 2019 (1810.04805), sec. 3; Lan et al. 2020 (1909.11942), sec. 3.1.
    """

    text_position = "first"

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Output:
        """Compute the logits of every position, and of each row as a pair where there is a head.

        ``mask`` is True at real tokens, None where all are; what is computed at padding means
        nothing. ``segments`` is 0 in a pair's first text and 1 in its second; None is 0 everywhere.
        The first token stands for its row where texts are judged.

        Raises ConfigError where the input is longer than the table of positions.
        """
        layout = Layout.bidirectional(tokens, mask)
        final = self.hidden(tokens, layout, segments=segments).final
        return self.outputs(final, mask)
