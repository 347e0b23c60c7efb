"""Every tensor of fairseq's checkpoints has its place, or is refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.errors import CheckpointError
from sublayer.interop.fairseq.importing import import_fairseq, read_fairseq
from tests.interop.fairseq_checkpoints import Change, saved


def without(name: str) -> Change:
    return lambda weights: {key: tensor for key, tensor in weights.items() if key != name}


def altered(name: str, tensor: Any) -> Change:
    return lambda weights: {**weights, name: tensor}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("encoder.layers.0.fc1.bias"), "the weights lack encoder.layers.0.fc1.bias"),
        (without("decoder.layer_norm.weight"), "the weights lack decoder.layer_norm.weight"),
        (without("encoder.embed_tokens.weight"), "the weights lack encoder.embed_tokens.weight"),
        (
            altered("decoder.extra", torch.ones(2)),
            "hold decoder.extra, which fairseq's Transformer has not",
        ),
        (
            altered("encoder.embed_positions.weight", torch.ones(2)),
            "hold encoder.embed_positions.weight, which fairseq's Transformer has not",
        ),
        (
            altered("decoder.embed_tokens.weight", torch.ones(23, 10)),
            r"decoder.embed_tokens.weight differs from encoder.embed_tokens.weight "
            r"\(checkpoint_best.pt: "
            "share_all_embeddings = True",
        ),
        (
            altered("decoder.embed_out", torch.ones(23, 10)),
            "though checkpoint_best.pt says that the output is the",
        ),
        (
            altered("encoder.layers.0.self_attn.q_proj.weight", torch.ones(10, 10)),
            "hold encoder.layers.0.self_attn.q_proj.weight twice, once as "
            "encoder.layers.0.self_attn.in_proj_weight",
        ),
        (
            altered("encoder.layers.0.self_attn.in_proj_bias", torch.ones(31)),
            r"in_proj_bias has shape \[31\]: queries, keys and values are not its thirds",
        ),
        (
            altered("encoder.layers.0.fc2.bias", torch.ones(9)),
            r"fc2.bias has shape \[9\], checkpoint_best.pt says",
        ),
        (
            altered("encoder.layers.0.fc2.bias", torch.full((10,), torch.nan)),
            "fc2.bias holds numbers that are not fin",
        ),
        (
            altered("encoder.layers.0.fc2.bias", torch.ones(10).to_sparse()),
            "not a name of a plain tensor",
        ),
        (
            altered("encoder.layers.0.fc2.bias", None),
            "'encoder.layers.0.fc2.bias', which is not a name of a plain",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, change: Change, message: str
) -> None:
    path = saved(tmp_path, change=change)
    with pytest.raises(CheckpointError, match=message) as caught:
        import_fairseq(path, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [path]


def test_two_tables_of_tokens_are_refused(tmp_path: Path) -> None:
    other = torch.ones(31, 10)
    path = saved(
        tmp_path,
        change=altered("decoder.embed_tokens.weight", other),
        share_all_embeddings=False,
        encoder_layers=2,
    )
    with pytest.raises(
        CheckpointError,
        match=r"share_all_embeddings = False\): source and target have one embedding mat",
    ):
        read_fairseq(path)
