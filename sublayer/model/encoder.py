"""An encoder: each token sees both sides of it; it predicts what was masked, and judges pairs of texts."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.model.heads import Pooler
from sublayer.model.layout import Layout
from sublayer.model.linear import Linear
from sublayer.model.transformer import Output, Transformer


class Encoder(Transformer):
    """Token ids in, logits of the token in each place out, and those of a pair of texts.

    Source: Devlin et al. 2019 (1810.04805), sec. 3; Lan et al. 2020 (1909.11942), sec. 3.1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.pooler = Pooler(config) if config.pooler == "tanh" else None
        n_classes = config.sentence_classes
        self.sentence_head = Linear(config.d_model, n_classes, bias=True) if n_classes else None

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Output:
        """Compute the logits of every place, and of each row as a pair of texts where there is a head for it.

        ``mask`` is True at real tokens; ``segments`` is 0 in a pair's first text and 1 in its second. Raises
        ConfigError where the input is longer than the table of positions.
        """
        final = self.hidden(tokens, Layout.bidirectional(tokens, mask), segments=segments).final
        has_head = self.sentence_head is not None
        return Output(self.logits(final), self.sentence_logits(final[:, 0]) if has_head else None)

    def pool(self, first: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Make one vector of each text from its first hidden state."""
        if self.pooler is None:
            return first
        pooled: Tensor = self.pooler(first)
        return pooled

    def sentence_logits(self, first: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows C"]:
        """Judge pairs by their first hidden states: class 1, or one positive logit, says that B does not follow A."""
        assert self.sentence_head is not None, "the config asks for no sentence head"
        logits: Tensor = self.sentence_head(self.pool(first))
        return logits
