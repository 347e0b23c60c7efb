"""How fast models read, measured on the spot."""

import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from sublayer.model.context.layout import Layout
from sublayer.model.decoder import Decoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.kernels.cross_entropy import nats_of_targets
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import batch_sequences
from sublayer.study.scorecard import Cell
from sublayer.suite.candidate import Candidate
from sublayer.suite.found import Column, Found
from sublayer.suite.measure import Measure
from sublayer.training.step_time import Clock, timed

SPEED = (
    "tokens/s: a forward pass in float32 over full contexts of random tokens, as many at a time "
    "as scoring takes; what predicts text gives every token's probability, an encoder its states, "
    "an encoder-decoder half of the tokens as source and half as target; ± the standard error over "
    "the passes"
)
_WARM_UP = 2
_FEWEST, _MOST = 5, 50
"""Passes that count."""
_BUDGET_S = 2.0
_LONGEST = 2048
"""Tokens of a row, where a model reads more."""


class Speed(Measure):
    """Tokens a second of a forward pass."""

    columns = (Column("tokens_per_second", "tokens/s", decimals=0),)
    title = "measuring the speed"
    is_timed = True

    def refusal(self, candidate: Candidate) -> str:
        """Measure every model."""
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Found:
        """Measure it, while this program does nothing else."""
        cell = measure_speed(candidate.load(device), candidate.context, device)
        return Found(self.columns, {"tokens_per_second": cell})


def measure_speed(
    model: Transformer, context: int, device: torch.device, clock: Clock = time.perf_counter
) -> Cell:
    """Measure the tokens a second of a forward pass: the mean, and its error over passes."""
    context = min(context, _LONGEST)
    n_rows = batch_sequences(model, context)
    read, n_tokens = _pass_of(model, n_rows, context, device)
    speeds: list[float] = []
    with evaluating(model), torch.inference_mode():
        for _ in range(_WARM_UP):
            timed(read, device=device, clock=clock)
        ends = clock() + _BUDGET_S
        while len(speeds) < _FEWEST or (len(speeds) < _MOST and clock() < ends):
            speeds.append(n_tokens / timed(read, device=device, clock=clock))
    error = statistics.stdev(speeds) / math.sqrt(len(speeds))
    return Cell(statistics.fmean(speeds), error=error)


def _pass_of(
    model: Transformer, n_rows: int, context: int, device: torch.device
) -> tuple[Callable[[], object], int]:
    """Return a forward pass, and the tokens that it reads."""
    generator = torch.Generator().manual_seed(0)

    def draw(length: int) -> Tensor:
        size = (n_rows, length)
        assert model.config.vocab_size is not None, "the model is built"
        return torch.randint(model.config.vocab_size, size, generator=generator).to(device)

    def predict(final: Tensor, targets: Tensor) -> Tensor:
        matrix, bias = model.output_projection()
        embedded = model.to_embedding(final).flatten(0, 1)
        return nats_of_targets(embedded, matrix, bias, targets.flatten()).total

    if isinstance(model, EncoderDecoder):
        half = max(1, context // 2)
        source, target = draw(half), draw(half)

        def write() -> Tensor:
            memory = model.encode(source)
            return predict(model.hidden(target, Layout.causal(target), memory=memory).final, target)

        return write, 2 * n_rows * half
    tokens = draw(context)
    if isinstance(model, Decoder):
        return (
            lambda: predict(model.hidden(tokens, Layout.causal(tokens)).final, tokens)
        ), n_rows * context
    return (
        lambda: model.hidden(tokens, Layout.bidirectional(tokens, None)).final
    ), n_rows * context
