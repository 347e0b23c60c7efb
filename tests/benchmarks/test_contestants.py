"""Contestants of the speed benchmarks: models of one shape, and the score of their quality."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from sublayer.model.estimates import count_parameters
from sublayer.model.transformer import build

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def contestants(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import contestants

    return contestants


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name, peer", [("d256", "GPT2"), ("llama-2023", "LLAMA")])
def test_a_peer_of_the_same_parts_has_as_many_parameters(contestants, name, peer):
    size = contestants.SIZES[name]
    ours = contestants.our_model(size, 0.1)
    for variant in contestants.VARIANTS[getattr(contestants, peer)]:
        setup = contestants.Setup(getattr(contestants, peer), name, 0.1, "float32", variant)
        theirs = contestants.build_peer(setup)
        assert theirs.config._attn_implementation == variant
        assert (
            n_parameters(theirs)
            == n_parameters(build(ours, seed=0))
            == count_parameters(ours).total
        )


def test_llama_has_the_settings_of_the_recipe_llama_2023(contestants):
    size = contestants.SIZES["llama-2023"]
    ours = contestants.our_model(size, 0.1)
    theirs = contestants.build_peer(
        contestants.Setup(contestants.LLAMA, "llama-2023", 0.1, "float32", "sdpa")
    ).config
    found = (theirs.intermediate_size, theirs.num_attention_heads, theirs.head_dim)
    assert found == (ours.d_ff, ours.n_heads, ours.d_head)
    found = (theirs.rms_norm_eps, theirs.rope_parameters["rope_theta"], theirs.attention_dropout)
    assert found == (ours.norm_eps, ours.rotary_base, ours.dropout_attention)
    assert theirs.tie_word_embeddings == ours.tie_embeddings
    assert (ours.dropout, ours.dropout_embedding, ours.dropout_ffn) == (0, 0, 0)


def test_quality_is_scored_in_bits_for_each_byte_of_whole_windows(contestants):
    import quality_speed

    ids = np.array([0, 1, 0, 1, 1, 0, 1, 0], dtype=np.uint8)  # two windows of 3, and a rest

    def logits(tokens):
        # A 0 is followed by a 1 three times in four; after a 1 both are alike.
        odds = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
        return odds[tokens]

    # Windows 0 1 0 | 1 1 0, next bytes 1 0 1 | 1 0 1: three read a 0, and three a 1.
    expected = (3 * math.log2(4 / 3) + 3 * 1.0) / 6
    assert quality_speed.bits_per_byte(logits, ids, 3) == pytest.approx(expected)
