"""BERT and ALBERT of transformers in and out: logits of both heads, files, tokenizers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from tests.interop.encoders import (
    MAX_LEN,
    VOCAB_SIZE,
    assert_equal,
    ours,
    random_encoder,
    random_fields,
    theirs,
)

WEIGHTS = "model.safetensors"
HEADS = {"bert": "cls.predictions", "albert": "predictions"}
each_family = pytest.mark.parametrize("name", ["bert", "albert"])
Weights = dict[str, Tensor]
SMALL = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7}
ALBERT = {"num_hidden_layers": 2, "num_hidden_groups": 1, "embedding_size": 5}


def saved(
    folder: Path,
    name: str,
    seed: int = 0,
    *,
    kind: str = "ForPreTraining",
    dtype: torch.dtype = torch.float64,
    **fields: Any,
) -> Any:
    """Save a random encoder as transformers does, and return it."""
    fields = {**random_fields(name, seed), **fields}
    oracle = random_encoder(name, kind, **fields).to(dtype)
    oracle.save_pretrained(folder)
    return oracle


def change_weights(folder: Path, change: Callable[[Weights], Weights | None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file(change(tensors) or tensors, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("name", "seed"), [("bert", 0), ("bert", 1), ("albert", 1), ("albert", 3), ("albert", 5)]
)
def test_both_heads_give_the_same_logits_and_bits(tmp_path: Path, name: str, seed: int) -> None:
    folder = tmp_path / "theirs"
    oracle = saved(folder, name, seed)
    certificate = import_huggingface(folder, tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    expected = theirs(oracle)
    assert expected[0].dtype == torch.float64 and expected[0].std() > 0.05
    model = load(tmp_path / "imported")
    assert_equal(ours(model), expected, 1e-9)
    atol = 1e-5 * max(1.0, float(expected[0].abs().max()))
    wide = tuple(each if each is None else each.double() for each in ours(model.float()))
    assert_equal(wide, expected, atol)
    export_huggingface(load(tmp_path / "imported"), tmp_path / "exported")
    before, after = (load_file(path / WEIGHTS) for path in (folder, tmp_path / "exported"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    old, new = (
        json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "exported")
    )
    assert {key: old[key] for key in new} == {**new, "dtype": old["dtype"]}


def test_the_fields_of_an_albert_are_those_of_its_file(tmp_path: Path) -> None:
    fields = {
        "embedding_size": 4,
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "inner_group_num": 3,
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3,
        "initializer_range": 0.05,
        "layer_norm_eps": 1e-7,
        "hidden_act": "gelu_new",
    }
    saved(tmp_path, "albert", **{**SMALL, **fields})
    config = read_huggingface(tmp_path).config
    assert (config.d_model, config.d_embed, config.n_heads, config.n_layers) == (6, 4, 2, 12)
    assert (config.share, config.share_groups, config.share_inner) == ("all", 2, 3)
    dropouts = [config.dropout, config.dropout_embedding, config.dropout_attention]
    assert [*dropouts, config.dropout_ffn] == [0.2, 0.2, 0.3, 0]
    found = (config.init, config.init_std, config.norm_eps, config.gelu)
    assert found == ("truncated", 0.05, 1e-7, "tanh")


@each_family
def test_heads_may_be_missing_but_that_of_tokens(tmp_path: Path, name: str) -> None:
    masked = saved(tmp_path / "masked", name, kind="ForMaskedLM")
    model = read_huggingface(tmp_path / "masked")
    assert (model.config.pooler, model.config.sentence_classes) == ("none", 0)
    assert_equal(ours(model), theirs(masked), 1e-9)
    oracle = saved(tmp_path / "pooled", name)
    change_weights(
        tmp_path / "pooled",
        lambda held: {key: held[key] for key in held if "seq_rel" not in key and "sop" not in key},
    )
    model = read_huggingface(tmp_path / "pooled")
    assert (model.config.pooler, model.config.sentence_classes) == ("tanh", 0)
    assert_equal(ours(model), (theirs(oracle)[0], None), 1e-9)
    saved(tmp_path / "bare", name, kind="Model")
    with pytest.raises(CheckpointError, match="only a model that predicts masked tokens"):
        read_huggingface(tmp_path / "bare")


@pytest.mark.parametrize(("name", "is_tied"), [("bert", True), ("albert", False)])
def test_old_names_are_read(tmp_path: Path, name: str, is_tied: bool) -> None:
    oracle, head = saved(tmp_path, name, tie_word_embeddings=is_tied), HEADS[name]

    def age(held: Weights) -> Weights:
        old = {
            key.removeprefix(f"{name}.")
            .replace("LayerNorm.weight", "LayerNorm.gamma")
            .replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for key, tensor in held.items()
        }
        old["embeddings.position_ids"] = torch.arange(19)[None]
        if is_tied:
            old[f"{head}.decoder.weight"] = old["embeddings.word_embeddings.weight"].clone()
            old[f"{head}.decoder.bias"] = old.pop(f"{head}.bias")
        return old

    change_weights(tmp_path, age)
    model = read_huggingface(tmp_path)
    assert model.config.tie_embeddings == is_tied
    assert_equal(ours(model), theirs(oracle), 1e-9)


def test_projections_of_albert_are_kept(tmp_path: Path) -> None:
    oracle = saved(tmp_path, "albert", **{**SMALL, "embedding_size": 4})
    place = "albert.encoder.embedding_hidden_mapping_in"
    with torch.no_grad():
        # One that pads with zeros is no copy of nothing.
        oracle.get_parameter(f"{place}.weight").copy_(torch.eye(6, 4))
        oracle.get_parameter(f"{place}.bias").zero_()
    oracle.save_pretrained(tmp_path)
    assert_equal(ours(read_huggingface(tmp_path)), theirs(oracle), 1e-9)
    change_weights(
        tmp_path, lambda held: {key: held[key] for key in held if "hidden_mapping" not in key}
    )
    with pytest.raises(CheckpointError, match="lack encoder.embedding_hidden_mapping_in.weight"):
        read_huggingface(tmp_path)


def doubled(name: str, head: str) -> dict[str, tuple[str, str]]:
    """Names of tensors to add beside others of the same place."""
    words = "embeddings.word_embeddings.weight"
    return {
        rf"hold {head}.decoder.bias that differs": (f"{head}.decoder.bias", f"{head}.bias"),
        rf"hold {name}.{words} and {words}": (words, f"{name}.{words}"),
        r"hold embeddings.LayerNorm.gamma and embeddings.LayerNorm.weight": (
            *("embeddings.LayerNorm.gamma", f"{name}.embeddings.LayerNorm.weight"),
        ),
        r"hold encoder.extra, which": (f"{name}.encoder.extra", f"{head}.bias"),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (name, message)
        for number, message in enumerate(doubled("NAME", "HEAD"))
        for name in (["bert", "albert"][number % 2],)
    ],
)
def test_tensors_twice_or_of_no_place_are_refused_by_name(
    tmp_path: Path, name: str, message: str
) -> None:
    saved(tmp_path, name)
    head = HEADS[name]
    message = message.replace("NAME", name).replace("HEAD", head)
    added, source = doubled(name, head)[message]
    change_weights(tmp_path, lambda held: held.update({added: held[source] + 1}))
    with pytest.raises(CheckpointError, match=message):
        read_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert", {"is_decoder": True}, "is_decoder = True"),
        ("albert", {"pruned_heads": {"0": [1]}}, r"pruned_heads = {'0': \[1\]}"),
        ("albert", {"hidden_act": "quick_gelu"}, "hidden_act = 'quick_gelu'"),
        ("bert", {"num_attention_heads": 4}, "num_attention_heads = 4 does not divide"),
        ("bert", {"hidden_dropout_prob": 1}, "hidden_dropout_prob = 1"),
        ("albert", {"intermediate_size": 3}, r"has shape \[7, 6\], config.json says \[3, 6\]"),
        ("bert", {"num_hidden_layers": 9}, r"the weights lack .* and \d+ other"),
        ("bert", {"tie_word_embeddings": False}, r"the weights lack .*predictions.decoder.weight"),
        ("albert", {"num_hidden_groups": 3}, "num_hidden_groups = 3 is more than"),
        (
            "albert",
            {"num_hidden_layers": 18, "num_hidden_groups": 14},
            "num_hidden_groups = 14 does not part num_hidden_layers",
        ),
        ("albert", {"embedding_size": 6}, r"\[53, 5\], config.json says \[53, 6\]"),
        ("albert", {"inner_group_num": 2}, r"the weights lack .*albert_layers.1.*other"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_field(
    tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    saved(tmp_path / "theirs", name, **SMALL, **(ALBERT if name == "albert" else {}))
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(tmp_path / "theirs", tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "imported").exists()


BASE: dict[str, Any] = {
    "kind": "encoder",
    "n_layers": 4,
    "d_model": 12,
    "n_heads": 3,
    "d_ff": 17,
    "init": "truncated",
    "init_std": 0.3,
    "norm_eps": 1e-12,
    "norm_order": "post",
    "embedding_norm": True,
    "segments": "both",
    "head": "transform",
    "head_bias": True,
    "pooler": "tanh",
    "sentence_classes": 2,
}
SUM = {"embedding_projection": "sum"}
UNPAIRED = {"pooler": "none", "sentence_classes": 0}


def model_of(**fields: Any) -> Transformer:
    config = ModelConfig.model_validate({**BASE, **fields})
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=MAX_LEN), seed=7)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).normal_(std=0.1, generator=generator))
    return model.eval()


@pytest.mark.parametrize(
    ("model_type", "fields", "atol"),
    [
        ("bert", {"gelu": "exact", "tie_embeddings": False}, 1e-9),
        ("bert", {"bias": False, "head_bias": False, "norm_affine": False, "ffn": "relu"}, 1e-9),
        ("bert", {"share": "attention", "share_groups": 2, "segments": "none"}, 1e-9),
        ("bert", {"positions": "none", "segments": "second", **UNPAIRED}, 1e-9),
        (
            "bert",
            {"sentence_classes": 0, "block": ("attention", "ffn:swish"), "ffn": "swish"},
            1e-9,
        ),
        ("albert", {"d_embed": 17, "tie_embeddings": False, **SUM}, 1e-9),
        ("albert", {"project_embeddings": "always", **SUM}, 1e-9),
        (
            "albert",
            {"share": "all", "share_groups": 2, "share_inner": 2, "d_embed": 5, **SUM},
            1e-9,
        ),
        ("albert", {"share": "ffn", "share_inner": 2, "d_embed": 5, **SUM}, 1e-9),
        # Groups that transformers rounds otherwise.
        ("albert", {"share": "all", "share_groups": 14, "n_layers": 18, "init_std": 0.1}, 1e-9),
        ("albert", {"share": "all", **UNPAIRED}, 1e-9),
        ("bert", {"positions": "sinusoidal"}, 1e-4),
        ("albert", {"embedding_scale": "sqrt", "d_embed": 5, **SUM}, 1e-4),
    ],
    ids=str,
)
def test_an_export_opens_in_transformers_and_comes_back_with_the_same_logits(
    tmp_path: Path, model_type: str, fields: dict[str, Any], atol: float
) -> None:
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

    model = model_of(**fields)
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["checked"] and certificate["largest_difference"]["float64"] < atol
    has_sentence = bool(model.config.sentence_classes)
    kinds = [AutoModelForPreTraining] if has_sentence else []
    expected = ours(model)
    assert expected[0].std() > 0.05
    for kind in (AutoModelForMaskedLM, *kinds):
        oracle = kind.from_pretrained(tmp_path / "exported")
        judged = expected[1] if kind is AutoModelForPreTraining else None
        assert_equal(theirs(oracle.eval()), (expected[0], judged), 2e-5)
    config = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert config["architectures"] == [type(oracle).__name__]
    assert config["model_type"] == model_type
    again = read_huggingface(tmp_path / "exported")
    assert_equal(ours(again.double()), ours(model.double()), max(atol, 1e-12))


@pytest.mark.parametrize(
    "fields",
    [
        {"gelu": "exact", "tie_embeddings": False},
        {"share": "all", "share_groups": 2, "share_inner": 2, "d_embed": 5, **SUM},
        {"d_embed": 17, "dropout": 0.1, "dropout_attention": 0.2, **SUM},
    ],
    ids=str,
)
def test_an_export_comes_back_with_its_config_and_bits(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    model = model_of(**fields)
    export_huggingface(model, tmp_path / "exported")
    again = read_huggingface(tmp_path / "exported")
    idle = {"embedding_projection": model.config.embedding_projection}
    assert again.config.model_copy(update=idle) == model.config
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_encoder_of_neither_class_is_refused_by_both(tmp_path: Path) -> None:
    named = "model.norm_order = pre, model.final_norm = affine"
    with pytest.raises(ConfigError, match=f"neither BERT's class nor ALBERT's .* {named}:"):
        export_huggingface(model_of(norm_order="pre"), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


TRAINING = [b"the cat sat on the mat and the dog sat on the cat; over the field it ran, and on."]
TEXT = "the dog ran over the mat"


def export_with(tokenizer: Tokenizer, folder: Path, **fields: Any) -> Path:
    config = ModelConfig.model_validate({**BASE, **fields})
    model = build(resolve_model(config, vocab_size=tokenizer.vocab_size, context=32), seed=0).eval()
    model.tokenizer = tokenizer
    export_huggingface(model, folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "file", "fields"),
    [("wordpiece", "vocab.txt", {"share": "all"}), ("unigram", "spiece.model", {})],
)
def test_an_exported_tokenizer_frames_the_same_ids_in_transformers(
    tmp_path: Path, kind: str, file: str, fields: dict[str, Any]
) -> None:
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = train_tokenizer(kind, TRAINING * 9, vocab_size=60)
    folder = export_with(tokenizer, tmp_path / "exported", **fields)
    library = AutoTokenizer.from_pretrained(folder)
    ids, second = (tokenizer.encode(text).tolist() for text in (TEXT.encode(), b"the cat"))
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    pair = library(TEXT, "the cat")
    assert pair.input_ids == [cls_id, *ids, sep_id, *second, sep_id]
    assert pair.token_type_ids == [0] * (len(ids) + 2) + [1] * (len(second) + 1)
    assert library.model_max_length == 32
    config = AutoConfig.from_pretrained(folder)
    special = (config.pad_token_id, config.bos_token_id, config.eos_token_id)
    assert special == (tokenizer.pad_id, cls_id, sep_id)
    import_huggingface(folder, tmp_path / "imported")
    again = load(tmp_path / "imported").tokenizer
    assert again.encode(TEXT.encode()).tolist() == ids
    assert again.mask_id == tokenizer.mask_id
    # The original file alone will do.
    (folder / "tokenizer.json").unlink()
    assert (folder / file).is_file()
    again = read_huggingface(folder).tokenizer
    assert again is not None and again.encode(TEXT.encode()).tolist() == ids


def test_a_tokenizer_of_bytes_stays_behind(tmp_path: Path) -> None:
    folder = export_with(train_tokenizer("bytes", []), tmp_path / "exported")
    assert not (folder / "tokenizer.json").exists()
