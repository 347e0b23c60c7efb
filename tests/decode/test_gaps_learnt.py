"""A model that learned the corruption of some texts fills their gaps: both have one format."""

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import pairs_in_rows
from sublayer.data.span.corruption import corrupt
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.decode.gaps.completion import FillSettings
from sublayer.decode.gaps.fill import fill_gaps, go_on
from sublayer.decode.gaps.prompt import prompt_with_gaps
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.targets.loss import TargetLoss

TEXTS = {
    # Prompts, and what fills their gaps in training.
    "The <extra_id_0> sat on the <extra_id_1>.": ["cat", "mat"],
    "The dog ran over <extra_id_0>, and slept.": ["the field"],
    "<extra_id_0> a man came to <extra_id_1> door": ["Then", "the"],
    "It <extra_id_0> on the town; the horse was <extra_id_1>": ["rained", "wet"],
}
PREFIX = ("A woman saw", "the cat sat on the mat.")


def completed(prompt: str, fills: list[str]) -> str:
    for number, fill in enumerate(fills):
        prompt = prompt.replace(f"<extra_id_{number}>", fill)
    return prompt


WHOLE = [completed(prompt, fills) for prompt, fills in TEXTS.items()]
TOKENIZER = train_tokenizer(
    "unigram", ["\n".join([*WHOLE, " ".join(PREFIX)] * 9).encode()], vocab_size=120, sentinels=4
)
END, PAD = TOKENIZER.sep_id, TOKENIZER.pad_id


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text.encode()).tolist()


def example(prompt: str, fills: list[str]) -> tuple[list[int], list[int]]:
    """What an encoder reads and a decoder is to write, as training makes them of the text."""
    read = prompt_with_gaps(TOKENIZER, prompt)
    ids = list(read.ids[0])
    is_noise = [False] * len(ids)
    for fill, after in zip(fills, read.ids[1:], strict=True):
        cut_out = ids_of(fill)
        ids += [*cut_out, *after]
        is_noise += [True] * len(cut_out) + [False] * len(after)
    assert ids == ids_of(completed(prompt, fills))
    corrupted = corrupt(np.array([ids]), np.array([is_noise]), TOKENIZER.sentinel_ids)
    assert read.source == corrupted.inputs.ids.tolist()
    return read.source, corrupted.targets.ids.tolist()


def batch_of(examples: list[tuple[list[int], list[int]]]) -> PackedBatch:
    sources = [np.array([*source, END]) for source, _ in examples]
    targets = [np.array([*target, END]) for _, target in examples]
    return pairs_in_rows(sources, targets, pad_id=PAD, first_id=PAD)


def learnt(examples: list[tuple[list[int], list[int]]]) -> EncoderDecoder:
    """Train a small model until it knows the examples by heart."""
    config = ModelConfig(
        kind="encoder-decoder",
        n_layers=1,
        d_model=32,
        n_heads=2,
        positions="rotary",
        decoder_start="pad",
        init="normal",
        init_std=0.1,
    )
    resolved = resolve_model(config, vocab_size=TOKENIZER.vocab_size, context=64)
    model = build(resolved, seed=1)
    assert isinstance(model, EncoderDecoder)
    model.tokenizer = TOKENIZER
    loss = TargetLoss(model)
    batch = batch_of(examples)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(400):
        optimizer.zero_grad()
        nats = loss(batch)["nll"] / batch.n_predicted
        nats.backward()
        optimizer.step()
        if nats < 0.01:
            return model.eval()
    raise AssertionError(f"the examples are not known by heart: {nats:.3f} nats a token")


@pytest.fixture(scope="module")
def filler() -> EncoderDecoder:
    """A model that knows what fills the gaps of ``TEXTS``."""
    return learnt([example(prompt, fills) for prompt, fills in TEXTS.items()])


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("prompt", "fills"), TEXTS.items())
def test_gaps_are_filled_with_what_was_cut_out(
    filler: EncoderDecoder, prompt: str, fills: list[str], beam: int
) -> None:
    best = fill_gaps(filler, prompt, FillSettings(beam=beam))[0]
    assert best.text == completed(prompt, fills)
    assert [gap.text for gap in best.gaps] == fills
    assert [gap.n_tokens for gap in best.gaps] == [len(ids_of(fill)) for fill in fills]
    scores = [gap.score for gap in best.gaps if gap.score is not None]
    assert len(scores) == len(fills)
    # Nearly certain, and each gap's tokens are a part of all that was written.
    assert best.score > -3.0
    assert best.score <= sum(scores) <= 0.0


def test_a_prefix_is_gone_on_with_as_it_was_in_training() -> None:
    prefix, rest = PREFIX
    whole = ids_of(" ".join(PREFIX))
    n_read = len(ids_of(prefix))
    model = learnt([(whole[:n_read], whole[n_read:])])
    (found,) = go_on(model, prefix)
    assert found.text == " ".join(PREFIX)
    assert [gap.text for gap in found.gaps] == [rest]
