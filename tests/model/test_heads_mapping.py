"""Heads by name on every kind of model, one of them of this file alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.architecture.heads import HEADS, HeadRow
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import count_parameters
from sublayer.loading import load
from sublayer.model.init import initialise
from sublayer.model.layers.linear import Linear
from sublayer.model.model_folder import save_model
from sublayer.model.output import Output
from sublayer.model.roles import parameter_roles
from sublayer.model.transformer import Transformer

KINDS = ("decoder", "encoder", "encoder-decoder")
BOTH = {"pooler": "tanh", "sentence_classes": 2}
RandomModel = Callable[..., Transformer]

each_kind = pytest.mark.parametrize("kind", KINDS)


class Tags(nn.Module):
    """Tell each token's kind, of three."""

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.output = Linear(config.d_model, 3, bias=False)

    def forward(
        self, states: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"]
    ) -> Float[Tensor, "*rows N"]:
        return self.output(states)


@pytest.fixture
def tags(monkeypatch: pytest.MonkeyPatch) -> None:
    row = HeadRow(
        f"{__name__}:Tags",
        attribute="tags",
        title="tags",
        reads="positions",
        is_asked=lambda config: True,
        n_parameters=lambda config: 3 * config.d_model,
        n_products=lambda config: 3 * config.d_model,
    )
    monkeypatch.setitem(HEADS, "tags", row)


def run(model: Transformer, tokens: Tensor, mask: Tensor | None = None) -> Output:
    if model.config.kind == "encoder-decoder":
        return model(tokens.flip(1), target=tokens, target_mask=mask)
    return model(tokens, mask)


@each_kind
def test_every_kind_of_model_has_the_heads_that_its_config_asks_for(
    random_model: RandomModel, kind: str
) -> None:
    assert list(random_model(kind=kind).heads) == ["vocabulary"]
    model = random_model(kind=kind, **BOTH)
    assert list(model.heads) == ["vocabulary", "pooler", "sentence"]
    output = run(model, torch.arange(10).view(2, 5))
    assert {name: list(each.shape) for name, each in output.items()} == {
        "vocabulary": [2, 5, 17],
        "pooler": [2, 6],
        "sentence": [2, 2],
    }
    assert output.logits is output["vocabulary"]
    assert output.sentence_logits is output["sentence"]


@each_kind
def test_a_text_is_judged_by_the_state_that_sees_all_of_it(
    random_model: RandomModel, kind: str
) -> None:
    model = random_model(kind=kind, pooler="none", sentence_classes=1)
    with torch.no_grad():
        model.sentence_head.weight.fill_(0.0)
        model.sentence_head.weight[0, 2] = 3.0
        model.sentence_head.bias.fill_(0.5)
    final = torch.arange(24.0, dtype=torch.float64).view(1, 4, 6)
    # The third number of the first state is 2, of the last 20: 3 * 2 + 0.5 and 3 * 20 + 0.5.
    expected = 6.5 if kind == "encoder" else 60.5
    assert model.outputs(final)["sentence"].tolist() == [[expected]]
    # Where only the second and the third token are real, the last of these has 14: 3 * 14 + 0.5.
    mask = torch.tensor([[False, True, True, False]])
    expected = 6.5 if kind == "encoder" else 42.5
    assert model.outputs(final, mask)["sentence"].tolist() == [[expected]]


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_padding_behind_a_text_changes_no_judgement(random_model: RandomModel, kind: str) -> None:
    model = random_model(kind=kind, **BOTH)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    mask = torch.tensor([[True, True, True, False, False]])
    if kind == "encoder-decoder":
        memory = tokens.flip(1)
        alone = model(memory, target=tokens[:, :3])
        padded = model(memory, target=tokens, target_mask=mask)
    else:
        alone, padded = model(tokens[:, :3]), model(tokens, mask)
    torch.testing.assert_close(padded.sentence_logits, alone.sentence_logits, rtol=0, atol=1e-12)


@each_kind
@pytest.mark.usefixtures("tags")
def test_a_head_is_a_class_and_a_row(random_model: RandomModel, kind: str, tmp_path: Path) -> None:
    model = random_model(kind=kind, **BOTH)
    names = dict(model.named_parameters())
    assert parameter_roles(model)["tags.output.weight"] == "matrix"
    assert count_parameters(model.config).total == sum(each.numel() for each in names.values())
    initialise(model, model.config, seed=1)
    tokens = torch.arange(10).view(2, 5)
    found = run(model, tokens)["tags"]
    assert found.shape == (2, 5, 3)
    save_model(tmp_path / "model", model, {})
    torch.testing.assert_close(run(load(tmp_path / "model"), tokens)["tags"], found)
