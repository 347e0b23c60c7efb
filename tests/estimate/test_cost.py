"""Parameters and operations, by hand and published; refusals; memory and traffic of processes."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sublayer.config.load import load_recipe
from sublayer.config.model import parse_block
from sublayer.config.objective import MaskedObjective
from sublayer.config.optimizers import AdafactorConfig, AdamWConfig, LambConfig, MuonConfig
from sublayer.config.recipe import NEXT_TOKEN
from sublayer.config.resolve import resolve_model, resolve_optimizer, resolve_train
from sublayer.config.stacks import stacks
from sublayer.config.table import WIDEST_FFN
from sublayer.config.train import NOTHING, Frozen
from sublayer.errors import ConfigError
from sublayer.estimate import cluster
from sublayer.estimate.cluster import Group, check_training, process_memory, units_of
from sublayer.estimate.memory import (
    n_orthogonalised,
    n_states,
    saved_casts,
    step_sizes,
    training_memory,
)
from sublayer.model.blocks import FUNCTIONS
from sublayer.model.cache import Cache
from sublayer.model.estimates import (
    Parameters,
    Workload,
    count_parameters,
    estimate_of,
    flops_per_token,
    n_read_states,
    stack_length,
)
from sublayer.model.kernels import attention
from sublayer.model.transformer import build, compose
from sublayer.system import machine
from sublayer.system.machine import allocating, check_memory
from tests.breadth import rows
from tests.estimate import configurations as given
from tests.estimate.configurations import CONTEXT, build_objective, make_task_pass, resolved

BUILT = [
    *given.ENCODERS, *given.MODELS,
    {"block": ("ffn:glu*0.5", "attention", "attention*2", "ffn"), "norm_affine": False},
    {"n_layers": 6, "share": "all", "share_groups": 2, "share_inner": 3, "d_embed": 5},
    {"share": "attention", "share_groups": 5, "n_layers": 5, "positions": "relative"},
]  # fmt: skip
ENTRIES = parse_block(("attention", "cross", "ffn:relu", "ffn:swiglu"), default_ffn="relu")
ALBERT = {"embedding_projection": "sum", "head": "transform", "kind": "encoder", "d_embed": 7}
TINY = {"n_layers": 1, "d_model": 2, "n_heads": 1, "d_ff": 3, "vocab_size": 5, "context": 4}
D, V, T = 64, 1000, 16
BLOCK = 12 * D * D + 13 * D
ROOT = V * D + T * D + 2 * D
WEIGHTS = 4 * (3 * BLOCK + ROOT)


def counting():
    """Count operations, those of oneDNN's linear maps as well."""

    def of_map(x, weight, *settings, out_shape=None):
        return 2 * math.prod(x) * weight[0]

    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.mkldnn._linear_pointwise: of_map}
    )


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


@pytest.mark.parametrize(("entry", "bias"), list(product(ENTRIES, (True, False))), ids=str)
def test_a_sublayer_has_the_parameters_that_are_counted(entry, bias):
    config = resolved(d_model=10, n_heads=2, d_head=3, d_ff=7, bias=bias)
    with torch.device("meta"):
        function = FUNCTIONS[entry.name](config, entry)
    estimate = estimate_of(config, entry)
    sizes = {name: parameter.numel() for name, parameter in function.named_parameters()}
    assert estimate.n_parameters() == sum(sizes.values())
    weights = sum(size for name, size in sizes.items() if name.endswith("weight"))
    assert estimate.n_stacked + estimate.n_alone == weights
    assert estimate.n_stacked == sum(p.numel() for p in function.parameters() if p.dim() == 3)


def test_published_decoders_have_their_parameters():
    gpt2 = resolved(vocab_size=50257, context=1024, n_layers=12, d_model=768, n_heads=12)
    total, tables = 124_439_808, (50257 + 1024) * 768
    assert count_parameters(gpt2) == Parameters(total, total, total - tables, total)
    # Deep character transformers.
    fields = {"d_model": 512, "n_heads": 2, "ffn": "relu", "tie_embeddings": False}
    fields |= {"positions": "learned-per-layer", "head_bias": True, "final_norm": "plain"}
    for n_layers, total in ((12, 41_236_736), (64, 218_792_192)):
        deep = resolved(context=512, vocab_size=256, n_layers=n_layers, **fields)
        rest, counted = total - 256 * 512 - n_layers * 512 * 512, count_parameters(deep)
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
@pytest.mark.parametrize("n_layers, d_model, d_embed, alone, pooled, whole", [
    (12, 768, None, 108_891_648, 109_482_240, 110_106_428),
    (24, 1024, None, 334_092_288, 335_141_888, 336_226_108),
    (12, 768, 128, 11_159_808, 11_750_400, 11_881_148),
    (12, 4096, 128, 205_881_088, 222_662_400, 223_225_788),
], ids=["BERT-base", "BERT-large", "ALBERT-base", "ALBERT-xxlarge"])  # fmt: skip
def test_bert_and_albert_have_their_parameters(n_layers, d_model, d_embed, alone, pooled, whole):
    fields = {"kind": "encoder", "n_layers": n_layers, "d_model": d_model, "d_embed": d_embed}
    fields |= {"embedding_projection": "sum", "embedding_norm": "affine", "segments": "both"}
    fields |= {"norm_order": "post", "share": "all" if d_embed else "none", "head": "transform"}
    fields |= {"head_bias": True, "pooler": "tanh", "sentence_classes": 2, "context": 512}
    counted = count_parameters(resolved(n_heads=d_model // 64, vocab_size=30_522, **fields))
    found = (counted.encoder, counted.with_pooler, counted.with_heads, counted.total)
    assert found == (alone, pooled, whole, whole)


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
    with sdpa_kernel(SDPBackend.MATH), counting() as counter:
        output = model(tokens)
        judged = 0.0 if output.sentence_logits is None else output.sentence_logits.sum()
        (output.logits.sum() + judged).backward()
    # Scores and weighted values over the half of the keys that no query of a decoder sees.
    unseen = 3 * 3 * 2 * 2 * config.d_head * n_tokens if config.kind == "decoder" else 0
    counted = counter.get_total_flops() / tokens.numel()
    # The head of pairs, in pieces.
    assert counted == pytest.approx(flops_per_token(config, n_tokens) + unseen, abs=0.5)


@pytest.mark.parametrize("kind, window, n_layers", [("decoder", 5, 3), ("encoder", 6, 2)])
def test_flops_in_windows_are_those_of_the_pairs_that_are_seen(monkeypatch, kind, window, n_layers):
    # Row by row only such pairs are computed.
    monkeypatch.setattr(attention, "BLOCK_ROWS", 1)
    n_tokens, width = 13, 80
    fields = {"kind": kind, "n_layers": n_layers, "d_model": width, "n_heads": 2}
    fields |= {"attention_window": window, "window_pattern": "LG", "positions": "rotary"}
    config = resolved(context=n_tokens, **fields)
    with counting() as counter:
        build(config, seed=0)(torch.arange(n_tokens)[None]).logits.sum().backward()
    # A query is counted with half of the token that it stands at: two local ones, one global.
    halves = 3 * 2 * width * (2 * window + n_tokens) if kind == "decoder" else 0
    estimated = n_tokens * flops_per_token(config, n_tokens)
    assert counter.get_total_flops() == pytest.approx(estimated + halves, abs=n_tokens / 2)


@pytest.mark.parametrize("fields", [
    {"n_decoder_layers": 2, "ffn": "swiglu", "d_head": 6}, {"d_embed": 8},
], ids=str)  # fmt: skip
def test_flops_of_an_encoder_decoder_are_of_both_lengths(fields):
    n_read, n_written, n_rows = 11, 5, 3
    size = {"n_layers": 3, "d_model": 20, "n_heads": 2, "positions": "sinusoidal"}
    config = resolved(kind="encoder-decoder", context=n_read, **size, **fields)
    source, target = (torch.arange(n)[None].expand(n_rows, -1) for n in (n_read, n_written))
    model = build(config, seed=0)
    with sdpa_kernel(SDPBackend.MATH), counting() as counter:
        model(source, target=target).logits.sum().backward()
    # Scores and weighted values over the half of its tokens that no query of the decoder sees.
    unseen = 3 * 2 * config.n_decoder_layers * 2 * config.d_head * n_written**2
    counted = counter.get_total_flops() / n_rows - unseen
    estimated = flops_per_token(config, n_read, given.Uneven(n_read=n_read, n_written=n_written))
    # Rounded to a whole number for a token.
    assert n_read * estimated == pytest.approx(counted, abs=n_read / 2)


@pytest.mark.parametrize("name", rows(given.TASK_MODELS, 5))
def test_flops_of_a_step_on_a_task_are_those_of_its_loss(monkeypatch, name):
    # In one block, scores of keys that a decoder does not see are computed in full.
    monkeypatch.setattr(attention, "BLOCK_ROWS", CONTEXT)
    step = make_task_pass(name, "float32")
    objective = build_objective(step).train()
    batch = given.make_batches(step, step.sequences).batch(0)
    with sdpa_kernel(SDPBackend.MATH), counting() as counter:
        sum(objective(batch).values(), torch.zeros(())).backward()
    config, unseen = step.config, 0
    estimated = step.sequences * CONTEXT * flops_per_token(config, CONTEXT, step.objective)
    for stack in (each for each in stacks(config) if each.is_causal):
        length = stack_length(stack, step.lengths)
        # One query that reads a text sees all of its keys.
        n_layers = stack.n_layers - (n_read_states(config, step.objective, length) == 1)
        unseen += 3 * n_layers * 2 * config.d_model * length**2 * step.sequences
    assert counter.get_total_flops() == pytest.approx(estimated + unseen, rel=5e-3)


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


@pytest.fixture
def has_memory(monkeypatch):
    """Give the machine another size."""
    return lambda size: monkeypatch.setattr(machine, "total_memory", lambda: size)


def test_more_than_the_machine_has_is_refused_with_both_sizes(has_memory):
    has_memory(23 << 30)
    check_memory(23 << 30, "a batch", "make it smaller")
    with pytest.raises(ConfigError, match="^a batch needs 14.6 TiB, 23 GiB here: make it smaller$"):
        check_memory(16_052_870_000_000, "a batch", "make it smaller")
    has_memory(None)
    check_memory(1 << 80, "a batch", "make it smaller")


@pytest.mark.parametrize("fails", [
    lambda: torch.empty(1 << 50), lambda: torch.empty(1 << 62, 32),
    lambda: torch.zeros(1).expand(1 << 40, -1).contiguous(), lambda: bytearray(1 << 60),
], ids=["too many bytes", "more than a size can say", "a copy", "Python's"])  # fmt: skip
def test_a_failure_to_allocate_is_a_line_and_others_stay(fails):
    with pytest.raises(ConfigError, match="^there is not enough memory for the model: take a"):
        with allocating("the model", "take a smaller one"):
            fails()
    for text in ("shapes", "could not create a primitive descriptor for the product"):
        with pytest.raises(RuntimeError, match=text), allocating("the model", "take a smaller one"):
            raise RuntimeError(text)


def test_a_model_and_a_cache_are_measured_before_they_are_made(has_memory):
    model = load_recipe("gpt", {"model.n_layers": 2, "model.d_model": 64}).recipe.model
    config = resolve_model(model, vocab_size=256, context=256)
    n_bytes = sum(parameter.nbytes for parameter in build(config, seed=0).parameters())
    has_memory(n_bytes)
    build(config, seed=0)
    Cache(config, 2, 16)
    with pytest.raises(ConfigError, match="^the cache of 9 rows of 999,999 tokens needs"):
        Cache(config, 9, 999_999)
    has_memory(n_bytes - 1)
    with pytest.raises(ConfigError, match="^the model needs .* here: make model.d_model"):
        build(config, seed=0)


def trained(**settings):
    given = {name.replace("__", "."): value for name, value in settings.items()}
    recipe = load_recipe("gpt", given | {"train.precision": "float32"}).recipe
    model = resolve_model(recipe.model, vocab_size=256, context=recipe.data.context)
    train = resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=False, threads=1)
    return recipe.resolved(model, train, resolve_optimizer(recipe.optimizer, steps=1))


@pytest.mark.parametrize("settings, subject", [
    ({"model__d_ff": WIDEST_FFN}, "the model with its gradients and the optimizer's states"),
    ({"train__batch_sequences": 10**9}, "a batch"),
    ({"train__batch_sequences": 100_000, "train__micro_batch_sequences": 100_000},
     "a training step of 100,000 windows of 128 tokens at a time"),
])  # fmt: skip
def test_a_training_that_cannot_fit_is_refused_by_what_is_too_large(has_memory, settings, subject):
    has_memory(8 << 30)
    check_training(trained(train__batch_sequences=16, train__micro_batch_sequences=4))
    with pytest.raises(ConfigError, match=f"^{subject} needs"):
        check_training(trained(**settings))
    has_memory(None)
    check_training(trained(**settings))


def test_processes_that_divide_a_model_need_less_memory(has_memory):
    has_memory(8 << 30)
    # 1.2 billion parameters: 19 GB of weights, gradients and moments.
    large = {"model__d_model": 2048, "model__n_layers": 24, "train__batch_sequences": 8}
    with pytest.raises(ConfigError, match="^the model with its gradients"):
        check_training(trained(**large), n_processes=8)
    check_training(trained(**large, train__shard="full"), n_processes=8)
    with pytest.raises(ConfigError, match="^the model with this process's part"):
        check_training(trained(**large, train__shard="full"), n_processes=2)


def micro_batch(**settings):
    asked = {"n_layers": 3, "d_model": D, "n_heads": 2, "dropout": 0.0, **settings}
    config = resolved(vocab_size=V, context=T, **asked)
    return Workload(config, sequences=2, context=T, precision="float32", device="cuda")


def memory(n, shard="none", *, n_passes=1, exact=False):
    group = Group(n, shard, exact)
    return process_memory(micro_batch(), AdamWConfig(), n_passes=n_passes, group=group)


def test_units_are_the_blocks_and_the_rest():
    step, shared = micro_batch(), micro_batch(share="all")
    assert units_of(step.config, step.objective) == ([4 * BLOCK] * 3, 4 * ROOT)
    # All blocks share one, which is gathered with the rest.
    assert units_of(shared.config, shared.objective) == ([], 4 * (BLOCK + ROOT))


@pytest.mark.parametrize("optimizer", [LambConfig(), AdafactorConfig(min_factored=D)])
def test_updates_by_norms_of_whole_matrices_are_all_there_at_once(optimizer):
    step = micro_batch(n_layers=24)
    blocks, root = units_of(step.config, step.objective)
    trained = sum(blocks) + root
    states = 4 * n_states(step.config, step.objective, optimizer)
    two = process_memory(step, optimizer, n_passes=1, group=Group(2, "full"))
    # The process's part of weights and states, of gradients and of updates.
    assert (two.optimizer, two.step) == (states // 2, (trained + states) // 2 + trained)
    # Alone LAMB takes maps that are stored together in turn with others, Adafactor a few matrices.
    assert step_sizes(step, optimizer).update < trained


def test_each_process_holds_the_whole_maps_that_muon_updates_together():
    step, muon = micro_batch(n_layers=24), MuonConfig()
    blocks, root = units_of(step.config, step.objective)
    trained, states = sum(blocks) + root, 4 * n_states(step.config, step.objective, muon)
    eight = process_memory(step, muon, n_passes=1, group=Group(8, "full"))
    # The maps into the networks: gathered and copied, three narrow versions, two squares of D rows.
    maps = 24 * 4 * D * D
    assert n_orthogonalised(step.config, step.objective, muon) == 24 * 12 * D * D
    held = 4 * (2 * maps + (3 * maps + 2 * maps // 4) // 2)
    assert eight.step == (trained + states) // 8 + trained // 8 + held > trained


def test_gradients_stay_from_step_to_step_or_until_the_last_micro_batch():
    peaks = step_sizes(micro_batch(), AdamWConfig())
    assert memory(2).step == 4 * WEIGHTS + peaks.activations
    # Micro-batches before the last are summed beside the buckets.
    assert memory(2, n_passes=3).step == 5 * WEIGHTS + peaks.activations
    one, several = memory(4, "full"), memory(4, "full", n_passes=3)
    assert (one.gradients, several.gradients) == (WEIGHTS // 4, WEIGHTS)
    assert several.step == one.step + WEIGHTS
    # One process takes what it takes alone.
    alone = training_memory(micro_batch(), AdamWConfig(), n_passes=3)
    assert memory(1, "full", n_passes=3).total == alone.total


def test_the_loss_of_a_model_whose_weights_stay_gathered_is_its_peak():
    peaks = step_sizes(micro_batch(), AdamWConfig())
    # A block's gradients twice, those of the output matrix once; the pass has counted those of the
    # two matrices of a feed-forward network.
    in_blocks = 2 * 4 * BLOCK + peaks.in_blocks - 4 * 8 * D * D + 4 * V * D
    expected = 3 * WEIGHTS // 2 + WEIGHTS + max(peaks.in_loss, in_blocks)
    assert memory(2, "optimizer").step == expected


def test_full_divides_weights_and_states_and_gathers_two_blocks_and_the_rest():
    eight = memory(8, "full")
    assert (eight.weights, eight.optimizer) == (WEIGHTS // 8, 2 * WEIGHTS // 8)
    assert eight.gathered == 4 * (ROOT + 2 * BLOCK) + 2 * 4 * BLOCK
    assert memory(2, "full").step < memory(2, "optimizer").step
    # It is drawn in parts, and gathered to be evaluated.
    assert eight.building == WEIGHTS // 8 + 4 * ROOT
    assert eight.evaluating == WEIGHTS + 3 * WEIGHTS // 8
    assert eight.total >= max(eight.building, eight.evaluating, eight.step)
    # One that starts from another model has all of it first.
    group = Group(8, "full", begins_whole=True)
    started = process_memory(micro_batch(), AdamWConfig(), n_passes=1, group=group)
    assert started.building == WEIGHTS + 4 * ROOT // 8


def test_a_shared_matrix_is_cast_for_every_block_where_casts_are_not_kept():
    step = replace(micro_batch(share="all"), precision="bfloat16")
    # The output map of attention and both of the feed-forward network; stacked ones are cast for
    # each use anyway.
    assert saved_casts(step) == 2 * 9 * D * D
    assert saved_casts(replace(step, caches_casts=False)) == 3 * 2 * 9 * D * D


@pytest.mark.parametrize("group, trained, n_passes, sent", [
    (Group(4, "none"), 800, 3, (0, 2 * 600)), (Group(4, "optimizer"), 800, 3, (600, 600)),
    (Group(4, "full"), 800, 1, (600 + 450, 600)),
    (Group(4, "full"), 800, 3, (150 + 3 * 2 * 450, 600)), (Group(1, "full"), 800, 2, (0, 0)),
    (Group(2, "optimizer"), 400, 1, (400, 200)),  # half of it frozen
    (Group(2, exact=True), 800, 3, (0, 3 * 400)),  # two sums and the total
], ids=str)  # fmt: skip
def test_processes_send_their_share_of_what_goes_round(group, trained, n_passes, sent):
    rest = {"n_passes": n_passes, "group": group}
    assert cluster.step_traffic([300, 300], 200, trained, **rest) == sent
    # The momentum of Muon's maps is gathered by a sum where it is sharded.
    gathered, summed = cluster.step_traffic([300, 300], 200, trained, **rest, maps=400)
    more = 2 * 400 * (group.size - 1) // group.size if group.is_divided else 0
    assert (gathered, summed) == (sent[0], sent[1] + more)


def test_exact_keeps_a_sum_for_each_level_of_its_tree():
    sums = {1: (1, 1), 2: (2, 1), 3: (2, 2), 4: (3, 1), 7: (3, 3)}
    assert {n: cluster.tree_sums(n) for n in sums} == sums
    found = [memory(2, n_passes=n, exact=True).gradients for n in (1, 4)]
    assert found == [WEIGHTS, 3 * WEIGHTS]


def test_a_frozen_embedding_is_one_matrix():
    config = resolved(**{**TINY, "d_model": 8, "vocab_size": 9})
    optimizer = AdafactorConfig(min_factored=4)
    parts = (NOTHING, Frozen(embeddings=True))
    freed, left = (n_states(config, NEXT_TOKEN, optimizer, frozen) for frozen in parts)
    # A row and a column of the one matrix, and each number of the four positions.
    assert freed - left == (9 + 8) + 4 * 8
