"""fairseq's translation models: logits of its equations, settings, files, hostile content."""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.errors import CheckpointError
from sublayer.interop.fairseq.fairseq_file import find_checkpoint
from sublayer.interop.fairseq.importing import import_fairseq, read_fairseq
from sublayer.loading import load
from sublayer.model.encoder_decoder import EncoderDecoder
from tests.interop.fairseq_checkpoints import (
    END,
    MACARON,
    PAD,
    PLAIN,
    Shape,
    Weights,
    as_fork,
    as_newest,
    draw,
    reference,
    save_fork,
    save_newest,
    saved,
    settings,
)


def batch(shape: Shape) -> tuple[Tensor, Tensor]:
    """Draw a source that is padded on the left, as fairseq's are, and what the decoder reads."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(END, shape.vocab_size, (3, 8), generator=generator)
    source[1, :5] = PAD
    target = torch.randint(END, shape.vocab_size, (3, 6), generator=generator)
    target[:, 0] = END
    return source, target


@torch.inference_mode()
def logits(model: Any, shape: Shape) -> Tensor:
    assert isinstance(model, EncoderDecoder)
    source, target = batch(shape)
    return model(source, source.ne(PAD), target=target).logits


def assert_equal(model: Any, weights: Weights, shape: Shape) -> None:
    expected = reference(weights, shape, *batch(shape))
    assert expected.std() > 0.1
    torch.testing.assert_close(logits(model, shape), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "is_pre_norm", "is_tied"),
    [(MACARON, True, True), (MACARON, False, False), (PLAIN, True, False), (PLAIN, False, True)],
)
def test_a_model_of_macaron_nets_fork_gives_the_logits_of_its_equations(
    tmp_path: Path, shape: Shape, is_pre_norm: bool, is_tied: bool
) -> None:
    shape = replace(shape, is_pre_norm=is_pre_norm, is_tied=is_tied)
    weights = draw(shape)
    save_fork(tmp_path / "checkpoint_best.pt", as_fork(weights), settings(shape))
    import_fairseq(tmp_path, tmp_path / "imported")
    assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)


@pytest.mark.parametrize(
    ("activation", "is_tied"), [("relu", False), ("gelu", True), ("gelu_accurate", False)]
)
def test_the_certificate_compares_a_model_that_transformers_has(
    tmp_path: Path, activation: str, is_tied: bool
) -> None:
    shape = replace(PLAIN, is_tied=is_tied)
    weights = as_newest(draw(shape, 2))
    save_newest(tmp_path / "model.pt", weights, settings(shape, activation_fn=activation))
    certificate = import_fairseq(tmp_path / "model.pt", tmp_path / "imported")
    assert certificate["checked"]
    assert certificate["largest_difference"]["float64"] < 1e-9
    copies = ["decoder.embed_tokens.weight", "decoder.output_projection.weight"]
    assert certificate["left_out"] == {
        "optimizer_tensors": 0,
        "no_weights": ["decoder.version", "encoder.version"],
        "copies": copies if is_tied else copies[:1],
    }
    if activation == "relu":
        assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (MACARON, "model.block = macaron"),
        (replace(PLAIN, is_pre_norm=False), "post-norm with fairseq's sinusoids"),
    ],
)
def test_the_certificate_names_the_reason_where_nothing_was_compared(
    tmp_path: Path, shape: Shape, reason: str
) -> None:
    certificate = import_fairseq(saved(tmp_path, shape), tmp_path / "imported")
    assert not certificate["checked"]
    assert certificate["reason"] == f"no class of it has {reason}"
    assert certificate["left_out"]["optimizer_tensors"] == 3


def test_pre_norm_models_of_before_version_2_have_no_final_norms(tmp_path: Path) -> None:
    shape = replace(PLAIN, has_final_norm=False)
    weights = draw(shape)
    old = {name: each for name, each in as_fork(weights).items() if not name.endswith("version")}
    save_fork(tmp_path / "old.pt", old, settings(shape))
    assert_equal(read_fairseq(tmp_path / "old.pt")[0], weights, shape)


def test_a_decoder_with_norms_by_number_and_tables_of_sinusoids_is_read(tmp_path: Path) -> None:
    weights = draw(PLAIN)
    numbers = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2}
    old: Weights = {"decoder.embed_positions.weights": torch.ones(5, 10)}
    for name, tensor in as_fork(weights).items():
        start, _, kind = name.rpartition(".")
        stem, _, last = start.rpartition(".")
        old[f"{stem}.layer_norms.{numbers[last]}.{kind}" if last in numbers else name] = tensor
    save_fork(tmp_path / "old.pt", old, settings(PLAIN))
    assert_equal(read_fairseq(tmp_path / "old.pt")[0], weights, PLAIN)


def test_a_dictionary_beside_it_has_as_many_entries_as_the_table(tmp_path: Path) -> None:
    path = saved(tmp_path)
    lines = [f"piece{number}@@ {number}\n" for number in range(PLAIN.vocab_size - 4)]
    for name in ("dict.de.txt", "dict.en.txt"):
        (tmp_path / name).write_text("".join(lines))
    read_fairseq(path)
    (tmp_path / "dict.en.txt").write_text("".join(lines[1:]))
    with pytest.raises(CheckpointError, match=r"dict.en.txt has 22 entries .* has 23 rows"):
        read_fairseq(path)


def test_codes_and_a_dictionary_beside_it_are_its_tokenizer(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "bpecodes").write_text("#version: 0.2\nl o\nlo w</w>\n")
    names = ["low", "lo@@", "l@@", "o@@", "w", "e@@", "r"]
    names += [f"madeupword{number:04}" for number in range(PLAIN.vocab_size - 4 - len(names))]
    (tmp_path / "dict.de.txt").write_text("".join(f"{name} 1\n" for name in names))
    certificate = import_fairseq(path, tmp_path / "with")
    assert certificate["tokenizer"].startswith("it reads words that spaces divide")
    tokenizer = load(tmp_path / "with").tokenizer
    # Numbered as in the dictionary, behind <s>, <pad>, </s> and <unk>: low; lo@@ w e@@ r is not
    # what the merges make.
    assert tokenizer.encode_source(["low lower x"])[0].tolist() == [4, 5, 3, 9, 10, 3]
    assert tokenizer.write([4, 5, 8]) == "low low"
    (tmp_path / "other.codes").write_text("#version: 0.2\nl o</w>\n")
    with pytest.raises(CheckpointError, match=r"has bpecodes and other.codes: leave the codes"):
        read_fairseq(path)
    for codes in ("other.codes", "bpecodes"):
        (tmp_path / codes).unlink()
    assert read_fairseq(path)[0].tokenizer is None


def config_of(path: Path) -> ModelConfig:
    return read_fairseq(path)[0].config


def test_settings_become_fields(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    config = config_of(saved(tmp_path, MACARON))
    expected = {
        "decoder_block": ("ffn:relu*0.5", "attention", "cross", "ffn:relu*0.5"),
        "max_len": 48,
        "init": "xavier",
        "dropout": 0.3,
        "dropout_embedding": 0.3,
        "dropout_attention": 0.1,
        "dropout_ffn": 0.2,
        "embedding_scale": "sqrt",
    }
    assert {name: getattr(config, name) for name in expected} == expected
    changed = {"activation_dropout": 0.4, "no_scale_embedding": True}
    other = config_of(saved(tmp_path / "other", PLAIN, **changed))
    assert (other.block, other.dropout_ffn, other.embedding_scale) == ("transformer", 0.4, "none")


@pytest.mark.parametrize("is_nested", [False, True])
def test_settings_are_read_from_cfg(tmp_path: Path, is_nested: bool) -> None:
    found: Any = settings(PLAIN)
    if is_nested:
        found = {}
        for name, value in vars(settings(PLAIN)).items():
            side, _, rest = name.partition("_")
            if side in ("encoder", "decoder"):
                found.setdefault(side, {})[rest] = value
            else:
                found[name] = value
    save_newest(tmp_path / "model.pt", as_newest(draw(PLAIN)), found)
    assert config_of(tmp_path / "model.pt") == config_of(saved(tmp_path))


def altered(name: str, tensor: Any) -> Any:
    """Change a tensor of a checkpoint, or leave it out."""
    return lambda weights: {
        **{key: each for key, each in weights.items() if key != name},
        **({} if tensor is ... else {name: tensor}),
    }


BIAS, TABLE = "encoder.layers.0.fc2.bias", "encoder.embed_tokens.weight"
ATTENTION = "encoder.layers.0.self_attn"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((BIAS, ...), f"the weights lack {BIAS}"),
        (("decoder.extra", torch.ones(2)), "hold decoder.extra, which"),
        (("decoder.embed_tokens.weight", torch.ones(23, 10)), f"differs from {TABLE}"),
        (("decoder.embed_out", torch.ones(23, 10)), "though checkpoint_best.pt says"),
        ((f"{ATTENTION}.q_proj.weight", torch.ones(10, 10)), "q_proj.weight twice"),
        ((f"{ATTENTION}.in_proj_bias", torch.ones(31)), r"in_proj_bias has shape \[31\]"),
        ((BIAS, torch.full((10,), torch.nan)), "fc2.bias holds numbers that are not fin"),
        ((BIAS, torch.ones(10).to_sparse()), "not a name of a plain tensor"),
        ((BIAS, None), "not a name of a plain"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, change: tuple[str, Any], message: str
) -> None:
    path = saved(tmp_path, change=altered(*change))
    with pytest.raises(CheckpointError, match=message) as caught:
        import_fairseq(path, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder_learned_pos": True}, "cannot say: encoder_learned_pos = True"),
        ({"decoder_embed_dim": 12}, "decoder_embed_dim = 12: both stacks have one width"),
        ({"encoder_embed_dim": 11, "decoder_embed_dim": 11}, "encoder_embed_dim = 11 is odd"),
        ({"decoder_output_dim": 8}, "decoder_output_dim = 8 is not"),
        ({"decoder_normalize_before": False}, "both stacks have one order"),
        ({"activation_fn": "tanh"}, "activation_fn = 'tanh' is not one of relu, gelu"),
        ({"dropout": 1.5}, "dropout = 1.5"),
        ({"dropout": [1]}, r"dropout = \[1\]"),
        ({"dropout": 10**5000}, "is damaged, or no checkpoint"),
        ({"lr": torch.ones(2)}, "the setting lr holds a Tensor, not a plain value"),
        ({"share_all_embeddings": False}, "share_all_embeddings = False"),
        ({"macaron": True, "activation_fn": "gelu"}, "activation_fn = 'gelu': Macaron"),
        ({"encoder_layers": 1}, "hold encoder.layers.1.fc1.bias and 15 other"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    other = altered("decoder.embed_tokens.weight", torch.ones(31, 10))
    path = saved(tmp_path, change=other if "share_all_embeddings" in changed else dict, **changed)
    with pytest.raises(CheckpointError, match=message):
        import_fairseq(path, tmp_path / "imported")
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_folder_is_read_that_holds_one_checkpoint(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert find_checkpoint(tmp_path) == find_checkpoint(path) == path
    path.with_name("checkpoint_last.pt").write_bytes(path.read_bytes())
    (tmp_path / "empty").mkdir()
    for place, message in (
        (tmp_path, "has checkpoint_best.pt and 1 more: name one of them"),
        (tmp_path / "nowhere", "is not a checkpoint of fairseq"),
        (tmp_path / "empty", "nor a folder that holds one"),
    ):
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint(place)


class Command:
    """What runs a command when an ordinary unpickler reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(("place", "is_old"), [("args", True), ("model", False)])
def test_code_in_a_pickle_is_refused_and_never_run(
    tmp_path: Path, place: str, is_old: bool
) -> None:
    content = {"args": settings(PLAIN), "model": as_fork(draw(PLAIN)), "extra_state": {}}
    content[place], path = Command(tmp_path / "made"), tmp_path / "x.pt"
    torch.save(content, path, _use_new_zipfile_serialization=is_old)
    with pytest.raises(CheckpointError, match=r"names posix.mkdir, .* is never run"):
        import_fairseq(path, tmp_path / "imported")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


class DictConfig(dict[str, Any]):
    """A class of a library that is not of torch."""


def test_a_class_that_is_not_torchs_is_named(tmp_path: Path) -> None:
    save_newest(tmp_path / "x.pt", as_newest(draw(PLAIN)), DictConfig(vars(settings(PLAIN))))
    with pytest.raises(CheckpointError, match=rf"names {__name__}.DictConfig, .* as plain values"):
        read_fairseq(tmp_path / "x.pt")


@pytest.mark.parametrize("is_old", [True, False])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, is_old: bool) -> None:
    path = saved(tmp_path)
    if not is_old:
        save_newest(path, as_newest(draw(PLAIN)), settings(PLAIN))
    content, cut = path.read_bytes(), tmp_path / "cut.pt"
    for length in range(0, len(content), len(content) // 9):
        cut.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="is damaged"):
            read_fairseq(cut)


def test_a_byte_that_was_changed_in_a_weight_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    weights = as_newest(draw(PLAIN))
    save_newest(path, weights, settings(PLAIN))
    content = bytearray(path.read_bytes())
    content[content.index(weights["encoder.layers.0.fc1.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged .*: the check sum of 'model/data/"):
        read_fairseq(path)


def tables(*shape: int) -> Weights:
    """Return the tables of both stacks alone."""
    return {name: torch.ones(shape) for name in (TABLE, "decoder.embed_tokens.weight")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds no model"),
        ({"model": {}}, "it has neither args nor cfg with model"),
        ({"model": {}, "args": argparse.Namespace()}, f"the weights lack {TABLE}"),
        ({"model": tables(9), "args": argparse.Namespace()}, "has shape"),
        ({"model": tables(9, 4), "args": argparse.Namespace()}, "does not say"),
        ({"model": {2: torch.ones(1)}}, "model holds 2, which is not a name of a plain tensor"),
    ],
)
def test_a_file_without_a_translation_model_is_refused(
    tmp_path: Path, content: Any, message: str
) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=message):
        read_fairseq(tmp_path / "x.pt")
