"""BERT and ALBERT come in from transformers with equal logits, or are refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.exchange import import_huggingface, read_huggingface
from sublayer.loading import load
from tests.interop.encoders import SaveEncoder, assert_equal, ours, theirs

WEIGHTS = "model.safetensors"
each_family = pytest.mark.parametrize("name", ["bert", "albert"])
SEEDS = [*(("bert", seed) for seed in range(3)), *(("albert", seed) for seed in range(8))]
each_model = pytest.mark.parametrize(("name", "seed"), SEEDS)


def change_weights(
    folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor] | None]
) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file(change(tensors) or tensors, folder / WEIGHTS)


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@each_model
def test_both_heads_give_the_same_logits_in_float64(
    save_encoder: SaveEncoder, tmp_path: Path, name: str, seed: int
) -> None:
    folder, oracle = save_encoder(name, seed)
    certificate = import_huggingface(folder, tmp_path / "imported")
    expected = theirs(oracle)
    assert expected[0].dtype == torch.float64
    assert expected[0].std() > 0.05
    assert_equal(ours(load(tmp_path / "imported")), expected, 1e-9)
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate == json.loads((tmp_path / "imported" / "certificate.json").read_text())


@pytest.mark.parametrize(("name", "seed"), SEEDS[::2])
def test_both_heads_give_the_same_logits_in_float32(
    save_encoder: SaveEncoder, tmp_path: Path, name: str, seed: int
) -> None:
    folder, oracle = save_encoder(name, seed, dtype=torch.float32)
    import_huggingface(folder, tmp_path / "imported")
    expected = theirs(oracle)
    assert_equal(
        ours(load(tmp_path / "imported")), expected, 1e-5 * max(1.0, float(expected[0].abs().max()))
    )


def test_the_fields_of_an_albert_are_those_of_its_file(save_encoder: SaveEncoder) -> None:
    folder, _ = save_encoder(
        "albert",
        hidden_size=6,
        embedding_size=4,
        num_attention_heads=2,
        num_hidden_layers=4,
        num_hidden_groups=2,
        inner_group_num=3,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.3,
        initializer_range=0.05,
        layer_norm_eps=1e-7,
        hidden_act="gelu_new",
    )
    config = read_huggingface(folder).config
    assert (config.d_model, config.d_embed, config.n_heads, config.n_layers) == (6, 4, 2, 12)
    assert (config.share, config.share_groups, config.share_inner) == ("all", 2, 3)
    assert (
        config.dropout,
        config.dropout_embedding,
        config.dropout_attention,
        config.dropout_ffn,
    ) == (
        0.2,
        0.2,
        0.3,
        0,
    )
    assert (config.init, config.init_std, config.norm_eps, config.gelu) == (
        "truncated",
        0.05,
        1e-7,
        "tanh",
    )


@each_family
def test_a_model_for_masked_tokens_alone_has_no_other_head(
    save_encoder: SaveEncoder, tmp_path: Path, name: str
) -> None:
    folder, oracle = save_encoder(name, kind="ForMaskedLM")
    import_huggingface(folder, tmp_path / "imported")
    model = load(tmp_path / "imported")
    assert (model.config.pooler, model.config.sentence_classes) == ("none", 0)
    assert_equal(ours(model), theirs(oracle), 1e-9)


@each_family
def test_a_pooler_without_a_sentence_head_is_kept(save_encoder: SaveEncoder, name: str) -> None:
    folder, oracle = save_encoder(name)
    change_weights(
        folder,
        lambda held: {key: held[key] for key in held if "seq_rel" not in key and "sop" not in key},
    )
    model = read_huggingface(folder)
    assert (model.config.pooler, model.config.sentence_classes) == ("tanh", 0)
    assert_equal(ours(model), (theirs(oracle)[0], None), 1e-9)


@each_family
def test_a_model_without_a_head_is_refused(
    save_encoder: SaveEncoder, tmp_path: Path, name: str
) -> None:
    folder, _ = save_encoder(name, kind="Model")
    with pytest.raises(
        CheckpointError,
        match="only a model that predicts masked tokens or answers a task can be imported",
    ):
        import_huggingface(folder, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


@each_family
@pytest.mark.parametrize("is_tied", [True, False])
def test_old_names_are_read(save_encoder: SaveEncoder, name: str, is_tied: bool) -> None:
    folder, oracle = save_encoder(name, tie_word_embeddings=is_tied)
    head = {"bert": "cls.predictions", "albert": "predictions"}[name]

    def age(held: dict[str, Tensor]) -> dict[str, Tensor]:
        old = {
            key.removeprefix(f"{name}.")
            .replace("LayerNorm.weight", "LayerNorm.gamma")
            .replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for key, tensor in held.items()
        }
        old["embeddings.position_ids"] = torch.arange(19)[None]
        if is_tied:
            old[f"{head}.decoder.weight"] = old["embeddings.word_embeddings.weight"].clone()
            old[f"{head}.decoder.bias"] = old[f"{head}.bias"].clone()
        return old

    change_weights(folder, age)
    model = read_huggingface(folder)
    assert model.config.tie_embeddings == is_tied
    assert_equal(ours(model), theirs(oracle), 1e-9)


@each_family
def test_a_tied_bias_under_the_decoders_name_alone_is_read(
    save_encoder: SaveEncoder, name: str
) -> None:
    folder, oracle = save_encoder(name)
    head = {"bert": "cls.predictions", "albert": "predictions"}[name]
    change_weights(
        folder, lambda held: held.update({f"{head}.decoder.bias": held.pop(f"{head}.bias")})
    )
    assert_equal(ours(read_huggingface(folder)), theirs(oracle), 1e-9)


@each_family
def test_tied_tensors_that_differ_are_refused(save_encoder: SaveEncoder, name: str) -> None:
    folder, _ = save_encoder(name)
    head = {"bert": "cls.predictions", "albert": "predictions"}[name]
    change_weights(
        folder, lambda held: held.update({f"{head}.decoder.bias": held[f"{head}.bias"] + 1})
    )
    with pytest.raises(
        CheckpointError,
        match=rf"hold {head}.decoder.bias that differs from {head}.bias, but config.json",
    ):
        read_huggingface(folder)


@each_family
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"position_embedding_type": "relative_key"},
            "cannot say: position_embedding_type = 'relative_key'",
        ),
        ({"is_decoder": True}, "cannot say: is_decoder = True"),
        ({"add_cross_attention": True}, "cannot say: add_cross_attention = True"),
        ({"pruned_heads": {"0": [1]}}, "cannot say: pruned_heads = {'0': \\[1\\]}"),
        ({"type_vocab_size": 3}, "cannot say: type_vocab_size = 3 \\(only 2\\)"),
        ({"hidden_act": "quick_gelu"}, "hidden_act = 'quick_gelu' is not one of gelu_new"),
        ({"num_attention_heads": 4}, "num_attention_heads = 4 does not divide hidden_size = 6"),
        ({"hidden_dropout_prob": 1}, "hidden_dropout_prob = 1 is not a number"),
        ({"intermediate_size": 3}, r"has shape \[7, 6\], config.json says \[3, 6\]"),
        ({"num_hidden_layers": 9, "num_hidden_groups": 9}, r"the weights lack .* and \d+ other"),
        (
            {"model_type": "roberta"},
            "model_type = 'roberta'; only 'gpt2', 'openai-gpt', 'bert', 'albert', 'm2m_100', "
            "'marian', 't5' can be imported",
        ),
        ({"tie_word_embeddings": False}, r"the weights lack .*predictions.decoder.weight"),
    ],
)
def test_a_config_that_cannot_be_imported_is_refused_by_field(
    save_encoder: SaveEncoder, tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    folder, _ = save_encoder(name, hidden_size=6, num_attention_heads=2, intermediate_size=7)
    change_config(folder, **change)
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(folder, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_groups": 3}, "num_hidden_groups = 3 is more than num_hidden_layers = 2"),
        (
            {"num_hidden_layers": 18, "num_hidden_groups": 14},
            "num_hidden_groups = 14 does not part num_hidden_layers",
        ),
        (
            {"embedding_size": 7},
            r"embeddings.word_embeddings.weight has shape \[53, 5\], config.json says \[53, 7\]",
        ),
        (
            {"inner_group_num": 2},
            r"the weights lack encoder.albert_layer_groups.0.albert_layers.1.*other",
        ),
    ],
)
def test_an_albert_that_cannot_be_imported_is_refused_by_field(
    save_encoder: SaveEncoder, change: dict[str, Any], message: str
) -> None:
    folder, _ = save_encoder(
        "albert",
        hidden_size=6,
        embedding_size=5,
        num_attention_heads=2,
        num_hidden_layers=2,
        num_hidden_groups=1,
    )
    change_config(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        read_huggingface(folder)


@each_family
def test_weights_that_do_not_fit_are_refused_by_name(save_encoder: SaveEncoder, name: str) -> None:
    folder, _ = save_encoder(name)
    change_weights(folder, lambda held: held.update({f"{name}.encoder.extra": torch.ones(2)}))
    with pytest.raises(
        CheckpointError, match=r"hold encoder.extra, which .* for pre-training has not"
    ):
        read_huggingface(folder)


@each_family
def test_a_tensor_with_and_without_the_prefix_is_refused(
    save_encoder: SaveEncoder, name: str
) -> None:
    folder, _ = save_encoder(name)
    words = "embeddings.word_embeddings.weight"
    change_weights(folder, lambda held: held.update({words: held[f"{name}.{words}"].clone()}))
    with pytest.raises(
        CheckpointError, match=rf"hold {name}.{words} and {words}: leave one of them out"
    ):
        read_huggingface(folder)


@each_family
def test_a_norm_under_both_names_is_refused(save_encoder: SaveEncoder, name: str) -> None:
    folder, _ = save_encoder(name)
    norm = "embeddings.LayerNorm"
    change_weights(
        folder, lambda held: held.update({f"{norm}.gamma": held[f"{name}.{norm}.weight"].clone()})
    )
    with pytest.raises(
        CheckpointError, match=rf"hold {norm}.gamma and {norm}.weight: leave one of them out"
    ):
        read_huggingface(folder)


def test_a_projection_that_pads_with_zeros_is_kept(save_encoder: SaveEncoder) -> None:
    folder, oracle = save_encoder("albert", hidden_size=6, embedding_size=4, num_attention_heads=2)
    place = "albert.encoder.embedding_hidden_mapping_in"
    with torch.no_grad():
        oracle.get_parameter(f"{place}.weight").copy_(torch.eye(6, 4))
        oracle.get_parameter(f"{place}.bias").zero_()
    oracle.save_pretrained(folder)
    assert_equal(ours(read_huggingface(folder)), theirs(oracle), 1e-9)


def test_an_albert_without_its_projection_is_refused(save_encoder: SaveEncoder) -> None:
    folder, _ = save_encoder("albert", hidden_size=6, embedding_size=6, num_attention_heads=2)
    change_weights(
        folder, lambda held: {key: held[key] for key in held if "hidden_mapping_in" not in key}
    )
    with pytest.raises(
        CheckpointError, match="the weights lack encoder.embedding_hidden_mapping_in.weight"
    ):
        read_huggingface(folder)


@each_family
def test_a_folder_with_only_pickles_is_refused(save_encoder: SaveEncoder, name: str) -> None:
    folder, _ = save_encoder(name)
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    with pytest.raises(
        CheckpointError, match=r"pytorch_model.bin is a pickle.*safe_serialization=True"
    ):
        read_huggingface(folder)
