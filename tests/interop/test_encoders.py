"""BERT and ALBERT of transformers in and out: logits of both heads, files, tokenizers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build
from tests.interop.encoders import (
    VOCAB_SIZE,
    assert_equal,
    ours,
    random_encoder,
    random_fields,
    theirs,
)
from tests.interop.exported import config_of
from tests.interop.folders import (
    Weights,
    change_json,
    change_weights,
    opened,
    with_random_vectors,
)

HEADS = {"bert": "cls.predictions", "albert": "predictions"}
each_family = pytest.mark.parametrize("name", ["bert", "albert"])
SMALL = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7}
ALBERT = {"num_hidden_layers": 2, "num_hidden_groups": 1, "embedding_size": 5}


def saved(
    folder: Path,
    name: str,
    seed: int = 0,
    *,
    kind: str = "ForPreTraining",
    **fields: Any,
) -> Any:
    """Save a random encoder as transformers does, and return it."""
    fields = {**random_fields(name, seed), **fields}
    oracle = random_encoder(name, kind, **fields).double()
    oracle.save_pretrained(folder)
    return oracle


@pytest.mark.parametrize(("name", "seed"), [("bert", 0), ("albert", 3), ("albert", 5)])
def test_both_heads_give_the_same_logits(tmp_path: Path, name: str, seed: int) -> None:
    oracle = saved(tmp_path / "theirs", name, seed)
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    expected = theirs(oracle)
    assert expected[0].dtype == torch.float64 and expected[0].std() > 0.05
    model = load(tmp_path / "imported")
    assert_equal(ours(model), expected, 1e-9)
    wide = tuple(each if each is None else each.double() for each in ours(model.float()))
    assert_equal(wide, expected, 1e-5 * max(1.0, float(expected[0].abs().max())))


def test_the_fields_of_an_albert_are_those_of_its_file(tmp_path: Path) -> None:
    depths = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 3}
    dropouts = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    start = {"initializer_range": 0.05, "layer_norm_eps": 1e-7, "hidden_act": "gelu_new"}
    saved(tmp_path, "albert", **{**SMALL, "embedding_size": 4, **depths, **dropouts, **start})
    config = read_huggingface(tmp_path).config
    assert (config.d_model, config.d_embed, config.n_heads, config.n_layers) == (6, 4, 2, 12)
    assert (config.share, config.share_groups, config.share_inner) == ("all", 2, 3)
    found = [config.dropout, config.dropout_embedding, config.dropout_attention, config.dropout_ffn]
    assert found == [0.2, 0.2, 0.3, 0]
    found = [config.init, config.init_std, config.norm_eps, config.gelu]
    assert found == ["truncated", 0.05, 1e-7, "tanh"]


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


WORDS, NORM = "embeddings.word_embeddings.weight", "embeddings.LayerNorm"


@pytest.mark.parametrize(
    ("name", "added", "source", "message"),
    [
        ("bert", "cls.predictions.decoder.bias", "cls.predictions.bias", "that differs"),
        ("albert", WORDS, f"albert.{WORDS}", f"hold albert.{WORDS} and {WORDS}"),
        ("bert", f"{NORM}.gamma", f"bert.{NORM}.weight", f"hold {NORM}.gamma and {NORM}.weight"),
        ("albert", "albert.encoder.extra", "predictions.bias", "hold encoder.extra, which"),
    ],
)
def test_tensors_twice_or_of_no_place_are_refused_by_name(
    tmp_path: Path, name: str, added: str, source: str, message: str
) -> None:
    saved(tmp_path, name)
    change_weights(tmp_path, lambda held: held.update({added: held[source] + 1}))
    with pytest.raises(CheckpointError, match=message):
        read_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("albert", {"pruned_heads": {"0": [1]}}, r"pruned_heads = {'0': \[1\]}"),
        ("bert", {"num_attention_heads": 4}, "num_attention_heads = 4 does not divide"),
        ("albert", {"intermediate_size": 3}, r"has shape \[7, 6\], config.json says \[3, 6\]"),
        ("bert", {"tie_word_embeddings": False}, r"the weights lack .*predictions.decoder.weight"),
        ("albert", {"num_hidden_groups": 3}, "num_hidden_groups = 3 is more than"),
        ("albert", {"num_hidden_layers": 18, "num_hidden_groups": 14}, "does not part num_hidden"),
        ("albert", {"inner_group_num": 2}, r"the weights lack .*albert_layers.1.*other"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_field(
    tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    saved(tmp_path / "theirs", name, **SMALL, **(ALBERT if name == "albert" else {}))
    change_json(tmp_path / "theirs" / "config.json", **change)
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(tmp_path / "theirs", tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "imported").exists()


def built(name: str, vocab_size: int = VOCAB_SIZE, **fields: Any) -> Any:
    """Build a model that is exported as a class."""
    given = {"vocab_size": vocab_size, "max_len": 32, **fields}
    return with_random_vectors(build(config_of(name, **given), seed=7))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("bert that judges pairs", {"share": "attention", "n_layers": 4, "share_groups": 2}),
        # Groups that transformers rounds otherwise.
        ("albert", {"share_groups": 14, "n_layers": 18}),
    ],
)
def test_an_export_has_as_many_layers_as_groups_need(
    tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    model = built(name, **fields)
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["checked"] and certificate["largest_difference"]["float64"] < 1e-9
    again = read_huggingface(tmp_path / "exported")
    assert_equal(ours(again.double()), ours(model.double()), 1e-12)


TRAINING = [b"the cat sat on the mat and the dog sat on the cat; over the field it ran, and on."]
TEXT = "the dog ran over the mat"


@pytest.mark.parametrize(
    ("kind", "file", "name"),
    [("wordpiece", "vocab.txt", "albert"), ("unigram", "spiece.model", "bert")],
)
def test_an_exported_tokenizer_frames_the_same_ids_in_transformers(
    tmp_path: Path, kind: str, file: str, name: str
) -> None:
    from transformers import AutoConfig

    tokenizer = train_tokenizer(kind, TRAINING * 9, vocab_size=60)
    model, folder = built(name, tokenizer.vocab_size), tmp_path / "exported"
    model.tokenizer = tokenizer
    export_huggingface(model, folder)
    library = opened(folder)
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
