"""The settings of fairseq's checkpoints become fields, or are refused by name."""

from pathlib import Path
from typing import Any

import pytest

from sublayer.config.model import ModelConfig
from sublayer.errors import CheckpointError
from sublayer.interop.fairseq.importing import import_fairseq, read_fairseq
from tests.interop.fairseq_checkpoints import (
    MACARON,
    PLAIN,
    as_newest,
    draw,
    save_newest,
    saved,
    settings,
)


def config_of(path: Path) -> ModelConfig:
    return read_fairseq(path)[0].config


def test_settings_become_fields(tmp_path: Path) -> None:
    config = config_of(saved(tmp_path, MACARON))
    found = {
        name: getattr(config, name)
        for name in ("block", "decoder_block", "ffn", "d_ff", "max_len", "init")
    }
    assert found == {
        "block": "macaron",
        "decoder_block": ("ffn:relu*0.5", "attention", "cross", "ffn:relu*0.5"),
        "ffn": "relu",
        "d_ff": 7,
        "max_len": 48,
        "init": "xavier",
    }
    dropouts = (
        config.dropout,
        config.dropout_embedding,
        config.dropout_attention,
        config.dropout_ffn,
    )
    assert dropouts == (0.3, 0.3, 0.1, 0.2)
    assert (config.positions, config.sinusoids, config.first_position) == (
        "sinusoidal",
        "fairseq",
        2,
    )
    assert (config.norm_order, config.final_norm, config.norm_eps) == ("pre", "affine", 1e-5)
    assert (config.decoder_start, config.embedding_scale, config.tie_embeddings) == (
        "end",
        "sqrt",
        True,
    )
    (tmp_path / "other").mkdir()
    other = config_of(
        saved(tmp_path / "other", PLAIN, activation_dropout=0.4, no_scale_embedding=True)
    )
    assert (other.block, other.dropout_ffn, other.embedding_scale) == ("transformer", 0.4, "none")


@pytest.mark.parametrize("kind", ["a dict", "a namespace", "a nested dict"])
def test_settings_are_read_from_cfg(tmp_path: Path, kind: str) -> None:
    found: Any = settings(PLAIN)
    if kind != "a namespace":
        found = vars(found)
    if kind == "a nested dict":
        nested = {
            side: {
                name.removeprefix(f"{side}_"): found[name]
                for name in found
                if name.startswith(f"{side}_")
            }
            for side in ("encoder", "decoder")
        }
        found = {
            name: value
            for name, value in found.items()
            if not name.startswith(("encoder_", "decoder_"))
        } | nested
    save_newest(tmp_path / "model.pt", as_newest(draw(PLAIN)), found)
    assert config_of(tmp_path / "model.pt") == config_of(saved(tmp_path))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"encoder_learned_pos": True},
            "asks for what a recipe cannot say: encoder_learned_pos = True",
        ),
        ({"adaptive_softmax_cutoff": [4, 9]}, r"cannot say: adaptive_softmax_cutoff = \[4, 9\]"),
        ({"no_token_positional_embeddings": True}, "no_token_positional_embeddings = True"),
        (
            {"decoder_embed_dim": 12},
            "encoder_embed_dim = 10 and decoder_embed_dim = 12: both stacks have one width",
        ),
        ({"decoder_ffn_embed_dim": 8}, "encoder_ffn_embed_dim = 7 and decoder_ffn_embed_dim = 8"),
        (
            {"decoder_attention_heads": 5},
            "encoder_attention_heads = 2 and decoder_attention_heads = 5",
        ),
        (
            {"encoder_attention_heads": 3, "decoder_attention_heads": 3},
            "= 3 does not divide encoder_embed_dim = 10",
        ),
        ({"encoder_embed_dim": 11, "decoder_embed_dim": 11}, "encoder_embed_dim = 11 is odd"),
        ({"decoder_output_dim": 8}, "decoder_output_dim = 8 is not decoder_embed_dim = 10"),
        ({"decoder_normalize_before": False}, "both stacks have one order"),
        ({"encoder_layers": None}, "encoder_layers = None is not a whole number"),
        ({"activation_fn": "tanh"}, "activation_fn = 'tanh' is not one of relu, gelu"),
        ({"dropout": 1.5}, "dropout = 1.5 is not a number of at least 0"),
        ({"share_all_embeddings": "yes"}, "share_all_embeddings = 'yes' is not true or false"),
        ({"macaron": "newer"}, "macaron = 'newer' is not true, false or 'new'"),
        (
            {"macaron": True, "activation_fn": "gelu"},
            "activation_fn = 'gelu': Macaron Net's translation models",
        ),
        (
            {"macaron": True},
            r"the weights lack encoder.layers.0.macaron_layer_norm.weight and \d+ other",
        ),
        (
            {"encoder_layers": 1},
            "hold encoder.layers.1.fc1.bias and 15 other.*, which fairseq's Transformer has not",
        ),
        ({"decoder_layers": 4}, "the weights lack decoder.layers.3.self_attn_layer_norm.weight"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = saved(tmp_path, **changed)
    with pytest.raises(CheckpointError, match=message) as caught:
        import_fairseq(path, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [path]
