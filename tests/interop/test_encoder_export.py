"""Encoders go out as BERT or ALBERT with equal logits, come back as they were, or are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from tests.in_time import some_in_time
from tests.interop.encoders import MAX_LEN, VOCAB_SIZE, SaveEncoder, assert_equal, ours, theirs

BASE: dict[str, Any] = {
    "kind": "encoder",
    "n_layers": 4,
    "d_model": 12,
    "n_heads": 3,
    "d_ff": 17,
    "init_std": 0.3,
    "norm_order": "post",
    "embedding_norm": True,
    "segments": "both",
    "head": "transform",
    "head_bias": True,
    "pooler": "tanh",
    "sentence_classes": 2,
}
SUM = {"embedding_projection": "sum"}


def model_of(**fields: Any) -> Transformer:
    config = ModelConfig.model_validate({**BASE, **fields})
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=MAX_LEN), seed=7)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).normal_(std=0.1, generator=generator))
    return model.eval()


BERTS: dict[str, dict[str, Any]] = {
    "a plain model": {},
    "exact gelu": {"gelu": "exact"},
    "relu": {"ffn": "relu"},
    "a list of entries": {"block": ("attention", "ffn:swish"), "ffn": "swish"},
    "an untied head": {"tie_embeddings": False},
    "no biases": {"bias": False, "head_bias": False},
    "norms without parameters": {"norm_affine": False},
    "shared attention": {"share": "attention", "share_groups": 2},
    "no positions": {"positions": "none"},
    "no segments": {"segments": "none"},
    "the second segment alone": {"segments": "second"},
    "no sentence head": {"pooler": "none", "sentence_classes": 0},
    "a pooler without a sentence head": {"sentence_classes": 0},
    "another eps": {"norm_eps": 1e-2},
}
ALBERTS: dict[str, dict[str, Any]] = {
    "a narrower table": {"d_embed": 5, **SUM},
    "a wider table": {"d_embed": 17, **SUM},
    "a projection of equal width": {"project_embeddings": "always", **SUM},
    "one set of weights": {"share": "all", "d_embed": 5, **SUM},
    "groups": {"share": "all", "share_groups": 2},
    "inner groups": {"share": "all", "share_groups": 2, "share_inner": 2, "d_embed": 5, **SUM},
    "shared networks": {"share": "ffn", "share_inner": 2, "d_embed": 5, **SUM},
    "groups that round otherwise there": {
        "share": "all",
        "share_groups": 14,
        "n_layers": 18,
        "init_std": 0.1,
    },
    "shared weights without a sentence head": {
        "share": "all",
        "pooler": "none",
        "sentence_classes": 0,
    },
    "an untied head behind a narrower table": {"tie_embeddings": False, "d_embed": 5, **SUM},
}
ROUNDED: dict[str, dict[str, Any]] = {
    "sinusoids": {"positions": "sinusoidal"},
    "scaled embeddings": {"embedding_scale": "sqrt", "d_embed": 5, **SUM},
}
EXPORTED = {**BERTS, **ALBERTS, **ROUNDED}


@pytest.mark.parametrize("name", some_in_time(EXPORTED, 3))
def test_an_export_opens_in_transformers_and_comes_back_with_the_same_logits(
    tmp_path: Path, name: str
) -> None:
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

    model = model_of(**EXPORTED[name])
    certificate = export_huggingface(model, tmp_path / "exported")
    has_sentence = bool(model.config.sentence_classes)
    oracle = (AutoModelForPreTraining if has_sentence else AutoModelForMaskedLM).from_pretrained(
        tmp_path / "exported"
    )
    config = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert config["architectures"] == [type(oracle).__name__]
    assert config["model_type"] == ("bert" if name in BERTS or name == "sinusoids" else "albert")
    assert certificate["checked"]
    assert certificate["largest_difference"]["float64"] < (1e-4 if name in ROUNDED else 1e-9)
    expected = ours(model)
    assert expected[0].std() > 0.05
    assert_equal(theirs(oracle.eval()), expected, 2e-5)
    again = read_huggingface(tmp_path / "exported")
    assert_equal(ours(again.double()), ours(model.double()), 1e-4 if name in ROUNDED else 1e-12)


@pytest.mark.parametrize("name", ["a plain model", "an untied head", "one set of weights"])
def test_an_export_opens_as_a_model_for_masked_tokens(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForMaskedLM

    model = model_of(**EXPORTED[name])
    export_huggingface(model, tmp_path / "exported")
    oracle = AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    assert_equal(theirs(oracle), (ours(model)[0], None), 2e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"gelu": "exact"},
        {"tie_embeddings": False},
        {"share": "all", "share_groups": 2, "share_inner": 2, "d_embed": 5, **SUM},
        {"d_embed": 17, **SUM},
        {"share": "all"},
        {"pooler": "none", "sentence_classes": 0, "dropout": 0.1, "dropout_attention": 0.2},
    ],
)
def test_what_the_classes_have_comes_back_with_its_config_and_bits(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    model = model_of(**{"init": "truncated", "norm_eps": 1e-12, **fields})
    export_huggingface(model, tmp_path / "exported")
    again = read_huggingface(tmp_path / "exported")
    idle = {"embedding_projection": model.config.embedding_projection}
    assert again.config.model_copy(update=idle) == model.config
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("name", "seed"), [("bert", 0), *(("albert", seed) for seed in range(1, 6))]
)
def test_import_and_export_give_back_the_same_bits(
    save_encoder: SaveEncoder, tmp_path: Path, name: str, seed: int
) -> None:
    kind = ["ForPreTraining", "ForMaskedLM"][seed // 3]
    folder, _ = save_encoder(name, seed, kind=kind, dtype=torch.float32)
    import_huggingface(folder, tmp_path / "imported")
    export_huggingface(load(tmp_path / "imported"), tmp_path / "exported")
    before, after = (
        load_file(path / "model.safetensors") for path in (folder, tmp_path / "exported")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    old, new = (
        json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "exported")
    )
    assert {key: old[key] for key in new} == new


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"positions": "rotary", "d_head": 6}, ["model.positions = rotary", "model.d_head = 6"]),
        ({"positions": "learned-per-layer"}, ["model.positions = learned-per-layer"]),
        (
            {"norm": "rms", "ffn": "swiglu"},
            ["model.ffn = swiglu", "model.norm = rms", "model.head_activation = gelu"],
        ),
        ({"norm_order": "pre"}, ["model.norm_order = pre", "model.final_norm = affine"]),
        ({"final_norm": "plain"}, ["model.final_norm = plain"]),
        ({"embedding_norm": False}, ["model.embedding_norm = false"]),
        ({"block": "macaron"}, ["model.block = macaron"]),
        ({"d_embed": 5}, ["model.embedding_projection = tokens"]),
        ({"attention_scale": "none"}, ["model.attention_scale = none"]),
        ({"head": "linear"}, ["model.head = linear"]),
        ({"head_activation": "relu"}, ["model.head_activation = relu"]),
        ({"block": ("attention", "ffn:relu")}, ["model.head_activation = gelu"]),
        ({"sentence_classes": 1}, ["model.sentence_classes = 1"]),
        ({"pooler": "none"}, ["model.pooler = none"]),
    ],
)
def test_a_model_that_neither_class_can_represent_is_refused_by_field(
    tmp_path: Path, fields: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        export_huggingface(model_of(**fields), tmp_path / "exported")
    assert f"neither BERT's class nor ALBERT's can represent {', '.join(named)}:" in str(
        caught.value
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"embedding_norm": True}, "model.embedding_norm = true"),
        ({"head": "transform"}, "model.head = transform"),
        ({"project_embeddings": "always"}, "model.project_embeddings = always"),
    ],
)
def test_what_encoders_alone_have_is_refused_of_a_decoder(
    tmp_path: Path, fields: dict[str, Any], named: str
) -> None:
    config = ModelConfig.model_validate({"n_layers": 1, "d_model": 8, "n_heads": 2, **fields})
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=MAX_LEN), seed=0)
    with pytest.raises(ConfigError, match=f"GPT-2's class cannot represent {named}:"):
        export_huggingface(model, tmp_path / "exported")
