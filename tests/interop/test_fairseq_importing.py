"""fairseq's translation models come in with the logits of its equations, under a certificate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.errors import CheckpointError, ConfigError
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


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("is_pre_norm", [True, False])
@pytest.mark.parametrize("shape", [MACARON, PLAIN])
def test_a_model_of_macaron_nets_fork_gives_the_logits_of_its_equations(
    tmp_path: Path, shape: Shape, is_pre_norm: bool, is_tied: bool
) -> None:
    shape = replace(shape, is_pre_norm=is_pre_norm, is_tied=is_tied)
    weights = draw(shape)
    save_fork(tmp_path / "checkpoint_best.pt", as_fork(weights), settings(shape))
    import_fairseq(tmp_path, tmp_path / "imported")
    assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("is_pre_norm", [True, False])
def test_a_model_of_the_newest_version_gives_the_logits_of_its_equations(
    tmp_path: Path, is_pre_norm: bool, is_tied: bool
) -> None:
    shape = replace(PLAIN, is_pre_norm=is_pre_norm, is_tied=is_tied)
    weights = draw(shape, 1)
    save_newest(tmp_path / "model.pt", as_newest(weights), settings(shape))
    assert_equal(read_fairseq(tmp_path / "model.pt")[0], weights, shape)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize(
    ("activation", "theirs"),
    [
        ("relu", "relu"),
        ("gelu", "gelu"),
        ("gelu_accurate", "gelu_new"),
        ("gelu_fast", "gelu_new"),
        ("swish", "silu"),
    ],
)
def test_a_pre_norm_model_equals_transformers_m2m100_of_the_same_weights(
    tmp_path: Path, activation: str, theirs: str, is_tied: bool
) -> None:
    import transformers

    shape = replace(PLAIN, is_tied=is_tied)
    weights = as_newest(draw(shape, 2))
    save_newest(tmp_path / "model.pt", weights, settings(shape, activation_fn=activation))
    config = transformers.M2M100Config(
        vocab_size=shape.vocab_size,
        d_model=shape.d_model,
        encoder_layers=shape.n_encoder,
        decoder_layers=shape.n_decoder,
        encoder_attention_heads=shape.n_heads,
        decoder_attention_heads=shape.n_heads,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        activation_function=theirs,
        tie_word_embeddings=is_tied,
        pad_token_id=PAD,
    )
    oracle: Any = transformers.M2M100ForConditionalGeneration(config).double().eval()
    found = {
        f"model.{name}": tensor for name, tensor in weights.items() if not name.endswith("version")
    }
    found["lm_head.weight"] = found.pop("model.decoder.output_projection.weight")
    found["model.shared.weight"] = weights["encoder.embed_tokens.weight"]
    oracle.load_state_dict(found)
    source, target = batch(shape)
    with torch.inference_mode():
        mask = source.ne(PAD).long()
        expected = oracle(
            source, attention_mask=mask, decoder_input_ids=target, use_cache=False
        ).logits
    ours = logits(read_fairseq(tmp_path / "model.pt")[0], shape)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_certificate_compares_what_transformers_has_a_class_for(
    tmp_path: Path, is_tied: bool
) -> None:
    path = saved(tmp_path, replace(PLAIN, is_tied=is_tied))
    certificate = import_fairseq(path, tmp_path / "imported")
    assert certificate["checked"]
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate["left_out"] == {
        "optimizer_tensors": 6,
        "no_weights": [
            "decoder.embed_positions._float_tensor",
            "decoder.version",
            "encoder.embed_positions._float_tensor",
            "encoder.version",
        ],
        "copies": ["decoder.embed_tokens.weight"],
    }


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (MACARON, "no class of it has model.block = macaron"),
        (
            replace(PLAIN, is_pre_norm=False),
            "no class of it has post-norm with fairseq's sinusoids",
        ),
        (replace(PLAIN, has_final_norm=False), "no class of it has model.final_norm = none"),
    ],
)
def test_the_certificate_says_why_nothing_was_compared(
    tmp_path: Path, shape: Shape, reason: str
) -> None:
    def make_old(weights: Weights) -> Weights:
        is_old = not shape.has_final_norm
        return weights | {
            f"{side}.version": torch.tensor([2.0 - is_old]) for side in ("encoder", "decoder")
        }

    certificate = import_fairseq(saved(tmp_path, shape, make_old), tmp_path / "imported")
    assert (certificate["checked"], certificate["reason"]) == (False, reason)


def test_pre_norm_models_of_before_version_2_have_no_final_norms(tmp_path: Path) -> None:
    shape = replace(PLAIN, has_final_norm=False)
    weights = draw(shape)
    old = {
        name: tensor for name, tensor in as_fork(weights).items() if not name.endswith("version")
    }
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


def test_halves_become_float32(tmp_path: Path) -> None:
    path = saved(
        tmp_path, change=lambda weights: {name: tensor.half() for name, tensor in weights.items()}
    )
    certificate = import_fairseq(path, tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    state = load(tmp_path / "imported").state_dict()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    table = as_fork(draw(PLAIN))["encoder.embed_tokens.weight"]
    assert torch.equal(state["embedding.weight"], table.half().float())


def test_a_dictionary_beside_it_has_as_many_entries_as_the_table(tmp_path: Path) -> None:
    path = saved(tmp_path)
    lines = [f"piece{number}@@ {number}\n" for number in range(PLAIN.vocab_size - 4)]
    for name in ("dict.de.txt", "dict.en.txt"):
        (tmp_path / name).write_text("".join(lines))
    read_fairseq(path)
    (tmp_path / "dict.en.txt").write_text("".join(lines[1:]))
    with pytest.raises(
        CheckpointError, match=r"dict.en.txt has 22 entries .* has 23 rows: they do not belong"
    ):
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
    assert [ids.tolist() for ids in tokenizer.encode_source(["low lower x"])] == [
        [4, 5, 3, 9, 10, 3]
    ]
    assert tokenizer.write([4, 5, 8]) == "low low"
    (tmp_path / "other.codes").write_text("#version: 0.2\nl o</w>\n")
    with pytest.raises(
        CheckpointError, match=r"has bpecodes and other.codes: leave the codes of the model alone"
    ):
        read_fairseq(path)
    (tmp_path / "other.codes").unlink()
    (tmp_path / "bpecodes").unlink()
    assert read_fairseq(path)[0].tokenizer is None


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        import_fairseq(saved(tmp_path), tmp_path)
