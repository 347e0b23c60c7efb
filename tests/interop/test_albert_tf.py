"""ALBERT's TensorFlow release: a checkpoint of TensorFlow, and the logits of transformers."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.tensorflow.albert_tf import import_albert_tf
from sublayer.interop.tensorflow.tensor_bundle import read_bundle
from sublayer.loading import load
from tests.interop.bundles import write_bundle
from tests.interop.encoders import assert_equal, ours, random_encoder, random_fields, theirs

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


# As TensorFlow 2.21 wrote it: x = range(10) as int32 in the first shard, y = range(5.) as float32
# in the second.
TENSORFLOW_INDEX = bytes.fromhex(
    "0000 0608 021a 0208 0100 010f 7808 0312 0412 0208 0a28 2835 492f f9f2"
    "0001 1179 0801 1204 1202 0805 1801 2814 35f7 aa3f ee00 0000 0001 0000"
    "0000 afca b56c 0000 0000 0100 0000 00c0 f2a1 b000 0102 7a00 3900 0000"
    "0001 0000 0000 94b1 d08c 3e08 4b0e" + "00" * 36 + "57fb 808b 2475 47db"
)
X, Y = torch.arange(10, dtype=torch.int32), torch.arange(5.0)


def test_a_checkpoint_of_tensorflow_is_read_and_every_byte_of_its_index_guarded(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.data-00000-of-00002").write_bytes(X.numpy().tobytes())
    (tmp_path / "m.data-00001-of-00002").write_bytes(Y.numpy().tobytes())
    unguarded = []
    for place in range(-1, len(TENSORFLOW_INDEX)):
        index = bytearray(TENSORFLOW_INDEX)
        if place >= 0:
            index[place] ^= 0x55
        (tmp_path / "m.index").write_bytes(index)
        with suppress(CheckpointError):
            found = read_bundle(tmp_path)
            assert list(found) == ["x", "y"]
            assert torch.equal(found["x"], X) and torch.equal(found["y"], Y)
            unguarded.append(place)
    # The footer of 48 bytes starts with two handles of 2 bytes and ends with the magic number of 8.
    assert unguarded == [-1, *range(142 - 48 + 4, 142 - 8)]


def release(
    folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict, **fields: Any
) -> Any:
    """Write a random ALBERT as released, and return transformers' model of the same weights."""
    drawn = {**random_fields("albert", 3), "hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
    oracle = random_encoder("albert", **drawn, **fields).double()
    folder.mkdir()
    write_bundle(folder / "model.ckpt-best", change(released(oracle)))
    names = ("layer_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id")
    config = {name: value for name, value in drawn.items() if name not in names}
    config |= {"type_vocab_size": 2, "net_structure_type": 0, "hidden_act": "gelu", **fields}
    (folder / "albert_config.json").write_text(json.dumps(config))
    return oracle


def test_a_release_gives_the_logits_of_transformers_with_the_same_weights(tmp_path: Path) -> None:
    folder = tmp_path / "albert"
    oracle = release(folder)
    tokenizer = train_tokenizer("unigram", [b"the cat sat on the mat, and on"] * 9, vocab_size=40)
    (folder / "30k-clean.model").write_bytes(tokenizer.model)
    certificate = import_albert_tf(folder, tmp_path / "imported")
    slots = [name for name in released(oracle) if name.endswith(("adam_m", "adam_v", "_step"))]
    assert certificate["left_out"] == {"optimizer_tensors": len(slots)}
    assert not certificate["checked"]
    expected, model = theirs(oracle), load(tmp_path / "imported")
    assert expected[0].std() > 0.05
    assert_equal(ours(model), expected, 1e-9)
    assert model.tokenizer.encode(b"the cat").tolist() == tokenizer.encode(b"the cat").tolist()
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        import_albert_tf(folder, folder)


@pytest.mark.parametrize(
    ("fields", "change", "message"),
    [
        ({"hidden_act": "tanh"}, {}, "hidden_act = 'tanh' is not one of gelu, relu"),
        ({"num_attention_heads": 7}, {}, "num_attention_heads = 7 does not divide"),
        ({}, {"bert/extra": torch.ones(2)}, "hold extra, which ALBERT's release has not"),
        ({}, {"pooler/dense/bias": torch.ones(2)}, "bert/pooler/dense/bias and pooler/dense/bias"),
    ],
    ids=str,
)
def test_a_release_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], change: dict[str, Tensor], message: str
) -> None:
    folder = tmp_path / "albert"
    release(folder, lambda tensors: {**tensors, **change})
    path = folder / "albert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    with pytest.raises(CheckpointError, match=message):
        import_albert_tf(folder, tmp_path / "imported")
    shard = folder / "model.ckpt-best.data-00001-of-00002"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is cut short"):
        read_bundle(folder)
