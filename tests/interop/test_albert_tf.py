"""ALBERT's release comes in with the logits of transformers' ALBERT, or is refused by name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.tensorflow.albert_tf import import_albert_tf, read_albert_tf
from sublayer.loading import load
from tests.interop.bundles import write_bundle
from tests.interop.encoders import assert_equal, ours, random_encoder, random_fields, theirs

Release = Callable[..., tuple[Path, Any]]
# transformers' name -> the released code's, as its variables are called in Lan et al.'s repository.
RENAMED = [
    (r"albert\.embeddings\.(\w+_embeddings)\.weight", r"bert/embeddings/\1"),
    (r"albert\.embeddings\.LayerNorm", r"bert/embeddings/LayerNorm"),
    (r"albert\.encoder\.embedding_hidden_mapping_in", r"bert/encoder/embedding_hidden_mapping_in"),
    (
        r"albert\.encoder\.albert_layer_groups\.(\d+)\.albert_layers\.(\d+)",
        r"bert/encoder/transformer/group_\1/inner_group_\2",
    ),
    (r"\.attention\.(query|key|value)", r"/attention_1/self/\1"),
    (r"\.attention\.dense", r"/attention_1/output/dense"),
    (r"\.attention\.LayerNorm", r"/LayerNorm"),
    (r"\.ffn_output", r"/ffn_1/intermediate/output/dense"),
    (r"\.ffn\b", r"/ffn_1/intermediate/dense"),
    (r"\.full_layer_layer_norm", r"/LayerNorm_1"),
    (r"albert\.pooler", r"bert/pooler/dense"),
    (r"^predictions\.bias", r"cls/predictions/output_bias"),
    (r"^predictions", r"cls/predictions/transform"),
    (r"transform\.(dense|LayerNorm)", r"transform/\1"),
    (r"sop_classifier\.classifier\.weight", r"cls/seq_relationship/output_weights"),
    (r"sop_classifier\.classifier\.bias", r"cls/seq_relationship/output_bias"),
    (r"(LayerNorm\w*)\.weight", r"\1/gamma"),
    (r"(LayerNorm\w*)\.bias", r"\1/beta"),
    (r"\.weight", r"/kernel"),
    (r"\.bias", r"/bias"),
]


def released(oracle: Any) -> dict[str, Tensor]:
    """Return the weights under the released names, kernels turned, with an optimizer's slots."""
    found = {}
    for name, tensor in oracle.state_dict().items():
        if ".decoder." in name:
            continue
        for pattern, replacement in RENAMED:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor.T.contiguous() if name.endswith("/kernel") else tensor
    slots = {f"{name}/{slot}": torch.ones(2) for name in found for slot in ("adam_m", "adam_v")}
    return {**found, **slots, "global_step": torch.tensor(7)}


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """Return a function that writes a random ALBERT as released, and returns folder and model."""

    def write(
        seed: int = 0,
        change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
        **fields: Any,
    ) -> tuple[Path, Any]:
        drawn = {
            **random_fields("albert", seed),
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-12,
            **fields,
        }
        oracle = random_encoder("albert", **drawn).double()
        folder = tmp_path / "albert"
        folder.mkdir()
        write_bundle(folder / "model.ckpt-best", change(released(oracle)))
        names = ("layer_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id")
        config = {name: value for name, value in drawn.items() if name not in names}
        config |= {
            "type_vocab_size": 2,
            "net_structure_type": 0,
            "down_scale_factor": 1,
            "gap_size": 0,
        }
        config["hidden_act"] = {"gelu_new": "gelu"}.get(drawn["hidden_act"], drawn["hidden_act"])
        (folder / "albert_config.json").write_text(json.dumps(config))
        return folder, oracle

    return write


@pytest.mark.parametrize("seed", range(8))
def test_a_release_gives_the_logits_of_transformers_with_the_same_weights(
    release: Release, tmp_path: Path, seed: int
) -> None:
    folder, oracle = release(seed)
    certificate = import_albert_tf(folder, tmp_path / "imported")
    n_optimizer = sum(
        name.endswith(("adam_m", "adam_v", "global_step")) for name in released(oracle)
    )
    assert certificate["left_out"] == {"optimizer_tensors": n_optimizer}
    assert not certificate["checked"]
    expected = theirs(oracle)
    assert expected[0].std() > 0.05
    assert_equal(ours(load(tmp_path / "imported")), expected, 1e-9)


def test_relu_is_read(release: Release) -> None:
    folder, oracle = release(hidden_act="relu")
    assert_equal(ours(read_albert_tf(folder)[0]), theirs(oracle), 1e-9)


def test_where_widths_are_equal_there_is_no_projection(release: Release) -> None:
    def drop(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors.items() if "hidden_mapping_in" not in name}

    folder, oracle = release(change=drop, hidden_size=6, embedding_size=6, num_attention_heads=2)
    model, _ = read_albert_tf(folder)
    assert model.embedding.projection is None
    with torch.no_grad():
        projection = oracle.albert.encoder.embedding_hidden_mapping_in
        projection.weight.copy_(torch.eye(6))
        projection.bias.zero_()
    assert_equal(ours(model), theirs(oracle), 1e-9)


@pytest.mark.parametrize("change", ["module/", "no bert/", "module/, no bert/"])
def test_other_scopes_are_read(release: Release, change: str) -> None:
    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        scope = "module/" if "module/" in change else ""
        inner = "bert/" if "no bert/" in change else ""
        return {scope + name.removeprefix(inner): tensor for name, tensor in tensors.items()}

    folder, oracle = release(change=rename)
    assert_equal(ours(read_albert_tf(folder)[0]), theirs(oracle), 1e-9)


def test_a_variable_in_two_scopes_is_refused(release: Release) -> None:
    def double(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**tensors, "pooler/dense/bias": tensors["bert/pooler/dense/bias"]}

    folder, _ = release(change=double)
    with pytest.raises(CheckpointError, match="hold bert/pooler/dense/bias and pooler/dense/bias"):
        read_albert_tf(folder)


def test_a_module_of_the_hub_has_its_config_among_the_assets(release: Release) -> None:
    folder, oracle = release()
    for name in ("assets", "variables"):
        (folder / name).mkdir()
    (folder / "albert_config.json").rename(folder / "assets" / "albert_config.json")
    for path in folder.glob("model.ckpt-best.*"):
        path.rename(folder / "variables" / path.name.replace("model.ckpt-best", "variables"))
    assert_equal(ours(read_albert_tf(folder)[0]), theirs(oracle), 1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"hidden_act": "tanh"},
            r"albert_config.json: hidden_act = 'tanh' is not one of gelu, relu",
        ),
        ({"hidden_size": None}, r"albert_config.json: hidden_size = None is not a whole number"),
        (
            {"num_attention_heads": 4},
            r"albert_config.json: num_attention_heads = 4 does not divide hidden_size = 6",
        ),
        ({"type_vocab_size": 3}, r"albert_config.json asks for .* type_vocab_size = 3 \(only 2\)"),
        (
            {"embedding_size": 4},
            r"embeddings/word_embeddings has shape \[53, 5\], albert_config.json says \[53, 4\]",
        ),
        (
            {"inner_group_num": 2},
            r"lack encoder/transformer/group_0/inner_group_1/attention_1/self/query/kernel and \d+",
        ),
        (
            {"num_hidden_layers": 22, "num_hidden_groups": 22},
            "num_hidden_groups = 22 does not part num_hidden_layers = 22",
        ),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_field(
    release: Release, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder, _ = release(
        hidden_size=6,
        embedding_size=5,
        num_attention_heads=2,
        num_hidden_layers=2,
        num_hidden_groups=1,
        inner_group_num=1,
    )
    path = folder / "albert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message) as caught:
        import_albert_tf(folder, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "imported").exists()


def test_weights_that_do_not_fit_are_refused_by_name(release: Release) -> None:
    def spoil(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**tensors, "bert/extra": torch.ones(2)}

    folder, _ = release(change=spoil)
    with pytest.raises(
        CheckpointError, match="the weights hold extra, which ALBERT's release has not"
    ):
        read_albert_tf(folder)


def test_weights_that_are_not_finite_are_refused(release: Release) -> None:
    folder, _ = release(
        change=lambda tensors: {**tensors, "bert/pooler/dense/bias": torch.full([4], torch.inf)}
    )
    with pytest.raises(
        CheckpointError, match="pooler/dense/bias holds numbers that are not finite"
    ):
        read_albert_tf(folder)


def test_missing_and_damaged_files_are_named(release: Release, tmp_path: Path) -> None:
    folder, _ = release()
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        import_albert_tf(folder, folder)
    (folder / "albert_config.json").rename(folder / "other.json")
    with pytest.raises(
        CheckpointError, match="has no albert_config.json, which says how large the model is"
    ):
        read_albert_tf(folder)
    (folder / "albert_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="albert_config.json is not JSON"):
        read_albert_tf(folder)
    (folder / "model.ckpt-best.index").unlink()
    with pytest.raises(CheckpointError, match="has no TensorFlow checkpoint"):
        read_albert_tf(folder)
    with pytest.raises(CheckpointError, match="is not a TensorFlow checkpoint"):
        import_albert_tf(tmp_path / "nowhere", tmp_path / "imported")
