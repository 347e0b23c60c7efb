"""Parameters and operations: those of the built module, published, and worked out by hand."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sublayer.config.architecture.block import parse_block
from sublayer.config.architecture.stacks import stacks
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.estimate.cost import Parameters, count_parameters, flops_per_token, n_read_states
from sublayer.estimate.micro_batch import stack_length
from sublayer.estimate.sublayers.table import estimate_of
from sublayer.model.build import build, compose
from sublayer.model.layers.block import FUNCTIONS
from tests.breadth import rows
from tests.estimate.configurations import (
    CONTEXT,
    ENCODERS,
    MODELS,
    TASK_MODELS,
    Fields,
    Uneven,
    build_objective,
    make_batch,
    make_task_pass,
    resolved,
)

BUILT: list[Fields] = [
    *ENCODERS,
    *MODELS,
    {"block": ("ffn:glu*0.5", "attention", "attention*2", "ffn"), "norm_affine": False},
    {"n_layers": 6, "share": "all", "share_groups": 2, "share_inner": 3, "d_embed": 5},
    {"share": "attention", "share_groups": 5, "n_layers": 5, "positions": "relative"},
]


@pytest.mark.parametrize("fields", rows(BUILT, 10), ids=str)
def test_the_built_model_has_the_parameters_that_are_counted(fields):
    config = resolved(**fields)
    with torch.device("meta"):
        model = compose(config)

    def size(*modules):
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    total, blocks = size(model), size(model.stack)
    segments = [] if model.segment_table is None else [model.segment_table]
    tables = model.embedding.weight.numel() + size(model.positions, *segments)
    executed = sum(size(*model.stack.block(layer)) for layer in range(config.n_layers))
    heads = (getattr(model, name, None) for name in ("pooler", "sentence_head"))
    pooler, sentence_head = (size(head) if head else 0 for head in heads)
    body = total - size(model.head) - sentence_head
    encoders = (body - pooler, body, total) if config.kind == "encoder" else ()
    sizes = (total, total, total - tables, total - blocks + executed, *encoders)
    assert count_parameters(config) == Parameters(*sizes)


ENTRIES = parse_block(("attention", "cross", "ffn:relu", "ffn:swiglu"), default_ffn="relu")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_a_sublayer_has_the_parameters_that_are_counted(entry, bias):
    config = resolved(d_model=10, n_heads=2, d_head=3, d_ff=7, bias=bias)
    with torch.device("meta"):
        function = FUNCTIONS[entry.name].from_config(config, entry)
    estimate = estimate_of(config, entry)
    sizes = {name: parameter.numel() for name, parameter in function.named_parameters()}
    assert estimate.n_parameters() == sum(sizes.values())
    weights = sum(size for name, size in sizes.items() if name.endswith("weight"))
    assert estimate.n_stacked + estimate.n_alone == weights
    assert estimate.n_stacked == sum(p.numel() for p in function.parameters() if p.dim() == 3)


def block_parameters(**fields: Any) -> int:
    one, two = (count_parameters(resolved(n_layers=n, **fields)).total for n in (1, 2))
    return two - one


def test_parameters_of_blocks_are_those_worked_out_by_hand():
    wide: Fields = {"d_model": 768, "d_ff": 3072}
    assert block_parameters(**wide) == 12 * 768**2 + 13 * 768
    macaron = block_parameters(d_model=768, d_ff=1536, block="macaron")
    assert macaron == block_parameters(**wide) + 3 * 768
    gated = block_parameters(d_model=768, d_ff=2048, ffn="reglu", bias=False)
    assert gated == block_parameters(**wide, ffn="relu", bias=False)


def test_shared_weights_are_unique_once_and_executed_every_time():
    width = {"d_model": 8, "n_heads": 2}
    alone = count_parameters(resolved(n_layers=12, **width))
    groups = {"share_groups": 2, "share_inner": 3}
    shared = count_parameters(resolved(n_layers=12, share="all", **groups, **width))
    attention, ffn = 4 * 8**2 + 6 * 8, 8 * 8**2 + 7 * 8
    assert alone.total - shared.total == (12 - 2 * 3) * (attention + ffn)
    assert shared.executed == alone.executed == alone.total
    for share, size in (("attention", attention), ("ffn", ffn)):
        fewer = count_parameters(resolved(n_layers=12, share=share, **width))
        assert alone.total - fewer.total == 11 * size
    flops = {flops_per_token(resolved(n_layers=6, share=s, **width), 11) for s in ("none", "all")}
    assert len(flops) == 1


def test_published_decoders_have_their_parameters():
    gpt2 = resolved(vocab_size=50257, context=1024, n_layers=12, d_model=768, n_heads=12)
    total, tables = 124_439_808, (50257 + 1024) * 768
    assert count_parameters(gpt2) == Parameters(total, total, total - tables, total)
    # Deep character transformers.
    fields = {"d_model": 512, "n_heads": 2, "ffn": "relu", "tie_embeddings": False}
    fields |= {"positions": "learned-per-layer", "head_bias": True, "final_norm": "plain"}
    for n_layers, total in ((12, 41_236_736), (64, 218_792_192)):
        deep = resolved(context=512, vocab_size=256, n_layers=n_layers, **fields)
        rest = total - 256 * 512 - n_layers * 512 * 512
        counted = count_parameters(deep)
        assert (counted.total, counted.non_embedding) == (total, rest)


@pytest.mark.parametrize("ffn, d_ff", [("relu", 3072), ("geglu", 2048)])
def test_t5_base_has_its_parameters(ffn, d_ff):
    fields = {"kind": "encoder-decoder", "n_layers": 12, "d_model": 768, "n_heads": 12}
    fields |= {"ffn": ffn, "d_ff": d_ff, "norm": "rms", "bias": False, "positions": "relative"}
    fields |= {"vocab_size": 32_100, "vocab_multiple": 128, "context": 512}
    tied, untied = (resolved(tie_embeddings=is_tied, **fields) for is_tied in (True, False))
    assert count_parameters(tied).total == 222_903_552
    assert count_parameters(untied).total == 247_577_856


# The encoder, with pooler, with pooler and heads; ALBERT's embeddings are narrower.
@pytest.mark.parametrize("n_layers, d_model, d_embed, alone, with_pooler, with_heads", [
    (12, 768, None, 108_891_648, 109_482_240, 110_106_428),
    (24, 1024, None, 334_092_288, 335_141_888, 336_226_108),
    (12, 768, 128, 11_159_808, 11_750_400, 11_881_148),
    (12, 4096, 128, 205_881_088, 222_662_400, 223_225_788),
], ids=["BERT-base", "BERT-large", "ALBERT-base", "ALBERT-xxlarge"])  # fmt: skip
def test_bert_and_albert_have_their_parameters(
    n_layers, d_model, d_embed, alone, with_pooler, with_heads
):
    fields = {"kind": "encoder", "n_layers": n_layers, "d_model": d_model, "d_embed": d_embed}
    fields |= {"embedding_projection": "sum", "embedding_norm": True, "segments": "both"}
    fields |= {"norm_order": "post", "share": "all" if d_embed else "none", "head": "transform"}
    fields |= {"head_bias": True, "pooler": "tanh", "sentence_classes": 2, "context": 512}
    counted = count_parameters(resolved(n_heads=d_model // 64, vocab_size=30_522, **fields))
    assert (counted.encoder, counted.with_pooler) == (alone, with_pooler)
    assert counted.with_heads == counted.total == with_heads


ALBERT = {"embedding_projection": "sum", "head": "transform", "kind": "encoder", "d_embed": 7}


@pytest.mark.parametrize("fields", [
    {"share": "all", "d_embed": 7, "tie_embeddings": False, "positions": "learned-per-layer"},
    {"block": ("ffn:glu*0.5", "attention", "ffn"), "positions": "rotary", "d_embed": 29},
    {"d_head": 6, "bias": False, "norm_order": "post", "head_bias": True, "softmax": "all"},
    {**ALBERT, "sentence_classes": 1},
    {**ALBERT, "share": "all", "pooler": "tanh", "sentence_classes": 2},
], ids=str)  # fmt: skip
def test_flops_are_those_of_the_built_model_but_for_half_of_attention(fields):
    n_tokens, size = 13, {"n_layers": 3, "d_model": 20, "n_heads": 2}
    config = resolved(context=n_tokens, **size, **fields)
    model, tokens = build(config, seed=0), torch.arange(n_tokens)[None].expand(5, -1)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = model(tokens)
        judged = 0.0 if output.sentence_logits is None else output.sentence_logits.sum()
        (output.logits.sum() + judged).backward()
    # Scores and weighted values over the half of the keys that no query of a decoder sees.
    unseen = 3 * 3 * 2 * 2 * config.d_head * n_tokens if config.kind == "decoder" else 0
    counted = counter.get_total_flops() / tokens.numel()
    # The head of pairs, in pieces.
    assert counted == pytest.approx(flops_per_token(config, n_tokens) + unseen, abs=0.5)


@pytest.mark.parametrize("fields", [
    {"n_decoder_layers": 2, "ffn": "swiglu", "d_head": 6}, {"d_embed": 8},
], ids=str)  # fmt: skip
def test_flops_of_an_encoder_decoder_are_of_both_lengths(fields):
    n_read, n_written, n_rows = 11, 5, 3
    size = {"n_layers": 3, "d_model": 20, "n_heads": 2, "positions": "sinusoidal"}
    config = resolved(kind="encoder-decoder", context=n_read, **size, **fields)
    source, target = (torch.arange(n)[None].expand(n_rows, -1) for n in (n_read, n_written))
    model = build(config, seed=0)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(source, target=target).logits.sum().backward()
    # Scores and weighted values over the half of its tokens that no query of the decoder sees.
    unseen = 3 * 2 * config.n_decoder_layers * 2 * config.d_head * n_written**2
    counted = counter.get_total_flops() / n_rows - unseen
    estimated = flops_per_token(config, n_read, Uneven(n_read=n_read, n_written=n_written))
    # Rounded to a whole number for a token.
    assert n_read * estimated == pytest.approx(counted, abs=n_read / 2)


@pytest.mark.parametrize("name", rows(TASK_MODELS, 5))
def test_flops_of_a_step_on_a_task_are_those_of_its_loss(name):
    step = make_task_pass(name, "float32")
    config = step.config
    objective, batch = build_objective(step).train(), make_batch(step)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        sum(objective(batch).values(), torch.zeros(())).backward()
    estimated = step.sequences * CONTEXT * flops_per_token(config, CONTEXT, step.objective)
    # Scores of keys that a decoder does not see are computed in full here.
    unseen = 0
    for stack in stacks(config):
        if stack.is_causal:
            length = stack_length(stack, step.lengths)
            # One query that reads a text sees all of its keys.
            n_layers = stack.n_layers - (n_read_states(config, step.objective, length) == 1)
            unseen += 3 * n_layers * 2 * config.d_model * length**2 * step.sequences
    assert counter.get_total_flops() == pytest.approx(estimated + unseen, rel=5e-3)


TINY: Fields = {"n_layers": 1, "d_model": 2, "n_heads": 1, "d_ff": 3, "vocab_size": 5, "context": 4}


def test_flops_of_tiny_models_are_those_worked_out_by_hand():
    # Multiply-adds per token: q, k, v, o 4*2*2 = 16; scores and values, half of 4 keys each, 2*2*2
    # = 8; feed-forward 2*2*3 = 12; output 2*5 = 10. Two operations each, three passes.
    assert flops_per_token(resolved(**TINY), 4) == (16 + 8 + 12 + 10) * 2 * 3
    # An encoder's scores and values are over all 4 keys. For each of the 2 masked tokens of 4:
    # transform 2*2 = 4, output 10. For the pair: pooler 2*2 = 4, head 2*2 = 4.
    config = resolved(**TINY, kind="encoder", head="transform", pooler="tanh", sentence_classes=2)
    body, masked, pair = 16 + 16 + 12, 2 * (4 + 10), 4 + 4
    objective = MaskedObjective(mask_share=0.5, sentence="sop")
    assert flops_per_token(config, 4, objective) == (body + (masked + pair) / 4) * 2 * 3
    # Pairs that are not judged cost nothing.
    objective = MaskedObjective(mask_share=0.5, sentence="none")
    assert flops_per_token(config, 4, objective) == (body + masked / 4) * 2 * 3


def test_parameters_and_flops_of_an_lstm_are_those_worked_out_by_hand():
    config = resolved(kind="lstm", n_layers=3, d_model=20, d_embed=8, vocab_size=100, context=7)
    gates = 4 * 20 * (20 + 20)  # four gates, of the input and of the output
    # Tables of 100 x 8; 8 x 20 + 20 in and 20 x 8 + 8 out; two biases of each gate.
    assert count_parameters(config).total == 800 + 180 + 168 + 3 * (gates + 2 * 4 * 20)
    # They do not grow with the context.
    for context in (7, 7000):
        assert flops_per_token(config, context) == 6 * (3 * gates + 8 * 20 + 20 * 8 + 8 * 100)
