"""Operations of a token: those of the built module, and those worked out by hand."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sublayer.config.architecture.stacks import stacks
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.estimate.cost import flops_per_token, n_read_states
from sublayer.estimate.micro_batch import stack_length
from sublayer.model.build import build
from tests.breadth import rows

from .configurations import CONTEXT, TASK_MODELS, make_task_pass, resolved
from .measured import build_objective, make_batch


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"share": "all", "d_embed": 7, "tie_embeddings": False, "positions": "learned-per-layer"},
        {
            "block": ("ffn:glu*0.5", "attention", "ffn"),
            "positions": "rotary",
            "d_embed": 29,
            "norm": "rms",
        },
        {"d_head": 6, "bias": False, "norm_order": "post", "head_bias": True},
        {"softmax": "all"},
        {"kind": "encoder", "segments": "both"},
        {
            "kind": "encoder",
            "d_embed": 7,
            "embedding_projection": "sum",
            "head": "transform",
            "sentence_classes": 1,
        },
        {
            "kind": "encoder",
            "head": "transform",
            "share": "all",
            "pooler": "tanh",
            "sentence_classes": 2,
        },
    ],
    ids=str,
)
def test_flops_are_those_of_the_built_model_but_for_half_of_attention(
    fields: dict[str, Any],
) -> None:
    n_tokens, n_layers, n_heads = 13, 3, 2
    config = resolved(context=n_tokens, n_layers=n_layers, d_model=20, n_heads=n_heads, **fields)
    model = build(config, seed=0)
    tokens = torch.arange(n_tokens)[None].expand(5, -1)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = model(tokens)
        judged = 0.0 if output.sentence_logits is None else output.sentence_logits.sum()
        (output.logits.sum() + judged).backward()
    assert config.d_head is not None
    # Scores and weighted values over the half of the keys that no query of a decoder sees.
    unseen = (
        3 * n_layers * 2 * (2 * n_heads * config.d_head * n_tokens) // 2
        if config.kind == "decoder"
        else 0
    )
    counted = counter.get_total_flops() / tokens.numel()
    assert counted == pytest.approx(
        flops_per_token(config, n_tokens) + unseen, abs=0.5
    )  # the head of pairs, in pieces


@pytest.mark.parametrize("name", rows(TASK_MODELS, 5))
def test_flops_of_a_step_on_a_task_are_those_of_its_loss(name: str) -> None:
    step = make_task_pass(name, "float32")
    config = step.config
    objective, batch = build_objective(step).train(), make_batch(step)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        sum(objective(batch).values(), torch.zeros(())).backward()
    said = step.sequences * CONTEXT * flops_per_token(config, CONTEXT, step.objective)
    # Scores of keys that a decoder does not see are computed in full here.
    unseen = 0
    for stack in stacks(config):
        if stack.is_causal:
            length = stack_length(stack, step.lengths)
            # One query that reads a text sees all of its keys.
            n_layers = stack.n_layers - (n_read_states(config, step.objective, length) == 1)
            unseen += 3 * n_layers * 2 * config.d_model * length**2 * step.sequences
    assert counter.get_total_flops() == pytest.approx(said + unseen, rel=5e-3)


def test_flops_of_a_tiny_model_are_those_worked_out_by_hand() -> None:
    # Multiply-adds per token: q, k, v, o 4*2*2 = 16; scores and values, half of 4 keys each, 2*2*2
    # = 8; feed-forward 2*2*3 = 12; output 2*5 = 10. Two operations each, three passes.
    config = resolved(vocab_size=5, context=4, n_layers=1, d_model=2, n_heads=1, d_ff=3)
    assert flops_per_token(config, 4) == (16 + 8 + 12 + 10) * 2 * 3


def test_flops_of_a_tiny_encoder_are_those_worked_out_by_hand() -> None:
    # Multiply-adds per token: q, k, v, o 4*2*2 = 16; scores and values over 4 keys each, 2*2*4 =
    # 16; feed-forward 2*2*3 = 12. For each of the 2 masked tokens of 4: transform 2*2 = 4, output
    # 2*5 = 10. For the pair: pooler 2*2 = 4, head 2*2 = 4. Two operations each, three passes.
    fields = {"n_layers": 1, "d_model": 2, "n_heads": 1, "d_ff": 3, "kind": "encoder"}
    config = resolved(
        vocab_size=5, context=4, head="transform", pooler="tanh", sentence_classes=2, **fields
    )
    objective = MaskedObjective(mask_share=0.5, sentence="sop")
    assert (
        flops_per_token(config, 4, objective) == (16 + 16 + 12 + (2 * (4 + 10) + 4 + 4) / 4) * 2 * 3
    )


@pytest.mark.parametrize(
    ("fields", "n"),
    [
        ({}, 77),
        ({"max_predictions": 20}, 20),
        ({"max_predictions": 20, "predict_first": True}, 21),
        ({"mask_share": 0.001}, 1),
    ],
    ids=str,
)
def test_the_head_runs_where_tokens_are_predicted(fields: dict[str, Any], n: int) -> None:
    assert MaskedObjective(**fields).n_predictions(512) == n


def test_pairs_that_are_not_judged_cost_nothing() -> None:
    config = resolved(kind="encoder", pooler="tanh", sentence_classes=2)
    without = config.model_copy(update={"pooler": "none", "sentence_classes": 0})
    objective = MaskedObjective(sentence="none")
    assert flops_per_token(config, 11, objective) == flops_per_token(without, 11, objective)


def test_flops_count_shared_blocks_as_often_as_they_run() -> None:
    config = resolved(n_layers=6, d_model=8, n_heads=2)
    shared = config.model_copy(update={"share": "all"})
    assert flops_per_token(config, 11) == flops_per_token(shared, 11)


def test_flops_follow_the_width_that_the_output_product_runs_at() -> None:
    wide, narrow = (
        resolved(vocab_size=97, d_model=32, n_heads=2, d_embed=width) for width in (32, 8)
    )
    projections = 2 * 32 * 8
    assert flops_per_token(wide, 11) - flops_per_token(narrow, 11) == 6 * (
        97 * (32 - 8) - projections
    )
