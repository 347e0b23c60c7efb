"""M2M100 and Marian of transformers, small: the same logits and translations, in and out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.interop.huggingface.exchange import (
    read_huggingface,
)
from sublayer.model.context.cache import Cache
from sublayer.model.encoder_decoder import EncoderDecoder
from tests.interop.tiny import tiny

CLASSES = ["m2m_100", "marian"]
END = 3


def oracle_of(name: str, **fields: Any) -> Any:
    """Build a translator of transformers with random weights and ids of its own."""
    given = {"vocab_size": 40, "max_position_embeddings": 30, "eos_token_id": END, **fields}
    pad = given["vocab_size"] - 1 if name == "marian" else 1
    start = pad if name == "marian" else END
    ids = {"bos_token_id": 0, "pad_token_id": pad, "decoder_start_token_id": start}
    ids |= {"forced_eos_token_id": END} if name == "marian" else {}
    return tiny(name, **{**given, **ids}).model()


@pytest.mark.parametrize("name", CLASSES)
@torch.no_grad()
def test_logits_padded_and_cached_are_the_same(tmp_path: Path, name: str) -> None:
    theirs = oracle_of(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_huggingface(tmp_path / "theirs").double()
    assert isinstance(ours, EncoderDecoder)
    pad, generator = theirs.config.pad_token_id, torch.Generator().manual_seed(4)
    drawn = torch.randint(4, theirs.config.vocab_size - 1, (3, 17), generator=generator)
    source, target = drawn[:, :8], drawn[:, 8:]
    mask = torch.arange(8) < torch.tensor([8, 3, 5])[:, None]
    padded = source.masked_fill(~mask, pad)
    memory, kept = ours.encode(padded, mask), Cache(ours.config, 3, 9, torch.float64)
    encoded, past = theirs.get_encoder()(padded, attention_mask=mask.long()), None
    for token in target.split(1, 1):
        rules = {"attention_mask": mask.long(), "past_key_values": past, "use_cache": True}
        output = theirs(encoder_outputs=encoded, decoder_input_ids=token, **rules)
        past = output.past_key_values
        assert (ours.decode(token, memory, kept) - output.logits).abs().max() < 1e-9
    whole = ours(padded, mask, target=target).logits
    expected = theirs(padded, attention_mask=mask.long(), decoder_input_ids=target).logits
    assert (whole - expected).abs().max() < 1e-9


@pytest.mark.parametrize(("name", "beam"), [("m2m_100", 4), ("marian", 1)])
def test_translations_equal_those_of_transformers(tmp_path: Path, name: str, beam: int) -> None:
    # Texts that end: transformers closes those that do not at no cost, and without a length of its
    # own for each.
    longest, theirs = 18, oracle_of(name, tie_word_embeddings=False)
    with torch.no_grad():
        for side in (theirs.model.encoder, theirs.model.decoder):
            side.embed_tokens.weight.copy_(theirs.model.shared.weight)
        theirs.lm_head.weight.mul_(0.2)
        if name == "marian":
            theirs.final_logits_bias.mul_(0.2)[:, END] += 3.5
        else:
            offset = theirs.model.decoder.layer_norm.bias
            theirs.lm_head.weight[END] += 3.5 * offset / offset.square().sum()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_huggingface(tmp_path / "theirs")
    assert isinstance(ours, EncoderDecoder)
    start, pad = theirs.config.decoder_start_token_id, theirs.config.pad_token_id
    rng = np.random.default_rng(0)
    words = [word for word in range(4, 39) if word != pad]
    sources = [rng.choice(words, rng.integers(1, 9)) for _ in range(12)]
    settings = BeamSettings(beam=beam, penalty=1.0, max_length_offset=longest)
    found = dict(search(ours, sources, settings, end_id=END, pad_id=pad, start_id=start))
    rules = {"num_beams": beam, "length_penalty": 1.0, "do_sample": False}
    rules |= {"early_stopping": beam > 1}
    n_compared = 0
    for number, source in enumerate(sources):
        if any(len(each.ids) >= longest for each in found[number]):
            continue
        n_compared += 1
        given = torch.tensor([[*source, END]])
        ids = theirs.generate(
            given, **rules, max_new_tokens=longest + 1, min_new_tokens=1, bad_words_ids=[[pad]]
        )[0]
        assert found[number][0].ids.tolist() == ids[1 : ids.tolist().index(END, 1)].tolist()
    assert n_compared > 5
