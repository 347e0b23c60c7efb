"""The softmax over all rows of the embedding matrix: tokens, and positions that are never right."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.task_heads import with_heads
from sublayer.data.batches import Batch
from sublayer.decode.sample import Sampling, generate
from sublayer.decode.step import Stepper
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.decoder import Decoder
from sublayer.model.transformer import Transformer
from sublayer.objective.causal.loss import Causal
from sublayer.tasks.registry import TASKS

from .conftest import MAX_LEN, VOCAB_SIZE, make_config

TOKENS = torch.arange(20).view(2, 10) % VOCAB_SIZE
TARGETS = TOKENS.flip(1)
Build = Callable[..., Transformer]


def whole_log_p(model: Transformer, tokens: Tensor) -> Tensor:
    """Compute log-probabilities as the released code does: of the one matrix, and its softmax."""
    weights = dict(model.named_parameters())
    matrix = torch.cat([weights["embedding.weight"], weights["positions.tables.0.weight"]])
    final = model.hidden(tokens, Layout.causal(tokens)).final
    return (model.to_embedding(final) @ matrix.T).log_softmax(-1)


@pytest.mark.parametrize("head", ["linear", "transform"])
def test_the_loss_is_that_of_the_whole_matrix(random_model: Build, head: str) -> None:
    model = random_model(softmax="all", head=head)
    found = Causal(model)(Batch(TOKENS, TARGETS, None))["lm"]
    log_p = whole_log_p(model, TOKENS)
    assert log_p.shape == (2, 10, VOCAB_SIZE + MAX_LEN)
    expected = -log_p.gather(-1, TARGETS[..., None]).sum()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for name, parameter in model.named_parameters():
        one, other = (
            torch.autograd.grad(each, parameter, retain_graph=True)[0] for each in (found, expected)
        )
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11, msg=name)


def test_what_is_trained_beside_the_nats_counts_positions_too(random_model: Build) -> None:
    model = random_model(softmax="all")
    found = Causal(model, CausalObjective(z_loss=0.01))(Batch(TOKENS, TARGETS, None))
    final = model.hidden(TOKENS, Layout.causal(TOKENS)).final
    matrix, _ = model.output_projection()
    log_z = (final @ matrix.T).logsumexp(-1)
    expected = found["lm"] + 0.01 * log_z.square().sum()
    torch.testing.assert_close(found["trained"], expected)


def test_a_position_without_a_vector_takes_its_share_too(random_model: Build) -> None:
    model = random_model(softmax="all", head_bias=True)
    with torch.no_grad():
        model.positions.input_table.zero_()
        model.head.bias.zero_()
    plain = random_model(head_bias=True)
    plain.load_state_dict(model.state_dict())
    logits = plain(TOKENS).logits
    # So many logits of 0, for they have no bias either.
    log_z = torch.cat([logits, logits.new_zeros(2, 10, MAX_LEN)], -1).logsumexp(-1)
    found = model(TOKENS).logits.log_softmax(-1)
    torch.testing.assert_close(found[..., :VOCAB_SIZE], logits - log_z[..., None])


def test_outputs_hold_every_class_and_what_is_written_tokens_alone(random_model: Build) -> None:
    model = random_model(softmax="all")
    logits = model(TOKENS).logits
    torch.testing.assert_close(logits.log_softmax(-1), whole_log_p(model, TOKENS))
    hidden = model.hidden(TOKENS, Layout.causal(TOKENS)).final
    torch.testing.assert_close(model.logits(hidden), logits[..., :VOCAB_SIZE])


@pytest.mark.parametrize("n_rows", [1, 3])
def test_a_step_gives_the_logits_of_tokens(random_model: Build, n_rows: int) -> None:
    model = random_model(softmax="all", head_bias=True)
    tokens = TOKENS.view(-1)[: n_rows * 5].view(n_rows, 5)
    cache, step = Cache(model.config, n_rows, 5, torch.float64), Stepper(model, n_rows)
    with torch.inference_mode():
        expected = model(tokens).logits[..., :VOCAB_SIZE]
        for place in range(5):
            torch.testing.assert_close(step(tokens[:, place], cache), expected[:, place])


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_no_position_is_ever_written(random_model: Build, temperature: float) -> None:
    model = random_model(softmax="all", n_layers=1)
    assert isinstance(model, Decoder)
    with torch.no_grad():
        # Far likelier than any token.
        model.positions.input_table.mul_(30.0)
    written = generate(model, TOKENS[:, :3], 40, Sampling(temperature=temperature), context=8)
    assert torch.stack(list(written)).max() < VOCAB_SIZE


def test_it_costs_its_products_and_no_parameters() -> None:
    plain, whole = make_config(), make_config(softmax="all")
    assert count_parameters(whole) == count_parameters(plain)
    more = flops_per_token(whole, MAX_LEN) - flops_per_token(plain, MAX_LEN)
    assert more == 6 * MAX_LEN * plain.d_model


@pytest.mark.parametrize(("weight", "expected"), [(0.5, "all"), (0.0, "tokens")])
def test_fine_tuning_keeps_it_where_texts_are_predicted_too(weight: float, expected: str) -> None:
    objective = SupervisedObjective(format="traversal", language_weight=weight)
    assert with_heads(make_config(softmax="all"), objective, TASKS["rte"]).softmax == expected


def test_tokens_alone_are_the_default(random_model: Build) -> None:
    model = random_model()
    assert model.config.softmax == "tokens"
    matrix, bias = model.output_projection()
    assert matrix is model.embedding.weight
    assert bias is None
    hidden = model.hidden(TOKENS, Layout.causal(TOKENS)).final
    torch.testing.assert_close(model(TOKENS).logits, F.linear(hidden, matrix))
