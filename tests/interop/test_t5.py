"""T5 of transformers in and out: networks, ties and scales, former files, tokenizers, beams."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.packing import PackedSequence, Unpacked, pack_examples
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.huggingface.classes import family_for
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.t5.t5_networks import NETWORKS, network_fields, network_name
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.supervised.text import nats_of_sequences
from tests.data.sentencepiece.t5 import TEXTS, write_t5
from tests.interop.tiny import VOCAB_SIZE, ours, theirs, tiny
from tests.sentinels import encode_with_sentinels

PLAIN = ["relu", "gelu", "gelu_new", "silu"]
GATED = ["gated-sigmoid", "gated-linear", "gated-relu", "gated-gelu", "gated-silu"]
FORMS = [(True, True), (True, False), (False, True), (False, False)]
OFTEN = list(zip(["relu", "gelu_new", "gated-gelu", "gated-silu"], FORMS, strict=True))


@torch.no_grad()
def saved(folder: Path, network: str, *, is_tied: bool, is_scaled: bool) -> Any:
    """Save a random T5 as transformers does; return it."""
    fields = {"feed_forward_proj": network, "scale_decoder_outputs": is_scaled}
    original = tiny("t5", **fields)
    model = original.kind(original.kind.config_class(**original.fields)).double().eval()
    model.load_state_dict(original.tensors, strict=False)
    model.tie_weights()
    if not is_tied:
        generator = torch.Generator().manual_seed(2)
        matrix = torch.randn(VOCAB_SIZE, 12, generator=generator, dtype=torch.float64)
        model.lm_head.weight = nn.Parameter(matrix)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("network", "form"), OFTEN)
def test_a_folder_comes_in_and_goes_out_with_the_same_bits(
    tmp_path: Path, network: str, form: tuple[bool, bool]
) -> None:
    check_both_ways(tmp_path, network, *form)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "form"), list(product(PLAIN + GATED, FORMS)))
def test_every_folder_comes_in_and_goes_out_with_the_same_bits(
    tmp_path: Path, network: str, form: tuple[bool, bool]
) -> None:
    check_both_ways(tmp_path, network, *form)


def check_both_ways(place: Path, network: str, is_tied: bool, is_scaled: bool) -> None:
    original = saved(place / "theirs", network, is_tied=is_tied, is_scaled=is_scaled)
    certificate = import_huggingface(place / "theirs", place / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert "ignored" not in certificate
    model = load(place / "ours")
    config = model.config
    places = ("dropout", "dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_final")
    assert {getattr(config, place) for place in places} == {0.1}
    assert (config.tie_embeddings, config.output_scale) == (
        is_tied,
        "sqrt" if is_scaled else "none",
    )
    torch.testing.assert_close(ours(model), theirs(original), rtol=0, atol=1e-9)
    export_huggingface(model, place / "again")
    written = json.loads((place / "again" / "config.json").read_text())
    assert written["feed_forward_proj"] == network
    reloaded = type(original).from_pretrained(place / "again", dtype=torch.float64)
    torch.testing.assert_close(theirs(reloaded), theirs(original), rtol=0, atol=1e-9)
    once_more = read_huggingface(place / "again")
    assert once_more.config == config
    assert_same_bits(once_more.state_dict(), model.state_dict())


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_every_network_has_a_name_that_is_read_as_it() -> None:
    for ffn, gelu in product(FFNS, ("exact", "tanh")):
        found = network_fields(network_name(ffn, gelu))
        expected = gelu if FFNS[ffn].activation == "gelu" else "tanh"
        assert found == {"ffn": ffn, "gelu": expected}
    assert network_name("geglu", "tanh") == "gated-gelu"
    assert {network_fields(name)["ffn"] for name in NETWORKS} == set(FFNS)


def test_the_released_forms_are_read_as_they_are() -> None:
    # v1.0 says nothing of ties and scales; v1.1 that nothing is tied.
    assert forms_of({}) == (True, "sqrt")
    assert forms_of({"tie_word_embeddings": True}) == (True, "sqrt")
    untied = {"lm_head.weight": torch.ones(VOCAB_SIZE, 12)}
    assert forms_of({"tie_word_embeddings": False}, untied) == (False, "none")
    # As today's transformers writes v1.1.
    today = {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    assert forms_of(today, untied) == (False, "none")
    assert forms_of({"scale_decoder_outputs": True, "tie_word_embeddings": False}, untied) == (
        False,
        "sqrt",
    )


def forms_of(fields: dict[str, Any], more: dict[str, Tensor] | None = None) -> tuple[bool, str]:
    from sublayer.interop.config_reader import Content
    from sublayer.interop.huggingface.classes import FAMILIES

    original = tiny("t5")
    family = FAMILIES["t5"]
    content = family.fields.read(Content("config.json", {**original.fields, **fields}))
    weights = family.prepare(content, {**original.tensors, **(more or {})})
    config = family.read_config(content, weights)
    return config.tie_embeddings, config.output_scale


def test_copies_and_what_former_files_hold_are_left_out(tmp_path: Path) -> None:
    original = tiny("t5")
    table = original.tensors["shared.weight"]
    copies = {f"{stack}.embed_tokens.weight": table.clone() for stack in ("encoder", "decoder")}
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    others = {unused: torch.ones(8, 3), "lm_head.weight": table.clone()}
    plain = read_huggingface(original.save(tmp_path / "plain"))
    original.tensors.update(copies | others)
    folder = original.save(tmp_path / "full")
    assert_same_bits(read_huggingface(folder).state_dict(), plain.state_dict())
    # Files keep one of the tensors that are one.
    for kept in ("encoder.embed_tokens.weight", "lm_head.weight"):
        tensors = load_file(tmp_path / "plain" / "model.safetensors")
        tensors[kept] = tensors.pop("shared.weight")
        save_file(tensors, folder / "model.safetensors")
        assert_same_bits(read_huggingface(folder).state_dict(), plain.state_dict())
    tensors = load_file(tmp_path / "plain" / "model.safetensors")
    save_file(tensors | {"decoder.embed_tokens.weight": table + 1}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"decoder\.embed_tokens\.weight that differs"):
        read_huggingface(folder)


def test_an_activation_beside_another_network_is_refused(tmp_path: Path) -> None:
    for fields in ({"dense_act_fn": "silu"}, {"is_gated_act": True}):
        folder = tiny("t5").save(tmp_path / next(iter(fields)), **fields)
        with pytest.raises(CheckpointError, match="contradicts feed_forward_proj = 'relu'"):
            read_huggingface(folder)


def test_a_tokenizer_with_sentinels_comes_in_and_goes_out(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.T5Tokenizer.from_pretrained(write_t5(tmp_path / "t5"), extra_ids=5)
    original = tiny("t5", vocab_size=128)
    folder = original.save(tmp_path / "theirs")
    tokenizer.save_pretrained(folder)
    write_t5(folder)
    import_huggingface(folder, tmp_path / "ours")
    model = load(tmp_path / "ours")
    assert len(model.tokenizer.sentinel_ids) == 5
    export_huggingface(model, tmp_path / "again")
    once_more = read_huggingface(tmp_path / "again")
    assert once_more.tokenizer.serialize() == model.tokenizer.serialize()
    reopened = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    for text in TEXTS[:3]:
        ids = encode_with_sentinels(model.tokenizer, text.encode()).tolist()
        assert reopened(text).input_ids == [*ids, 1] == tokenizer(text).input_ids


@pytest.mark.parametrize("beam", [1, 3])
def test_a_beam_finds_what_transformers_finds(tmp_path: Path, beam: int) -> None:
    original = tiny("t5", vocab_size=7, feed_forward_proj="gated-gelu")
    folder, longest = original.save(tmp_path / "theirs"), 30
    model = read_huggingface(folder)
    assert isinstance(model, EncoderDecoder)
    oracle = original.kind.from_pretrained(folder, dtype=torch.float64)
    rng = np.random.default_rng(0)
    sources = [rng.integers(2, 7, rng.integers(1, 9)) for _ in range(20)]
    settings = BeamSettings(beam=beam, penalty=1.0, max_length_offset=longest)
    found = dict(search(model, sources, settings, end_id=1, pad_id=0, start_id=0))
    rules = {"num_beams": beam, "length_penalty": 1.0, "early_stopping": beam > 1}
    rules |= {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    n_compared = 0
    for number, source in enumerate(sources):
        if any(len(each.ids) >= longest for each in found[number]):
            continue
        n_compared += 1
        ids = oracle.generate(
            torch.tensor([[*source, 1]]),
            **rules,
            do_sample=False,
            max_new_tokens=longest + 1,
            min_new_tokens=1,
            bad_words_ids=[[0]],
        )[0]
        assert found[number][0].ids.tolist() == ids[1 : ids.tolist().index(1, 1)].tolist()
    assert n_compared > 5


def test_a_model_that_was_trained_here_goes_out(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "kind": "encoder-decoder",
        "positions": "relative",
        "norm": "rms",
        "bias": False,
        "attention_scale": "none",
        "n_layers": 4,
        "d_model": 12,
        "n_heads": 3,
        "share": "all",
        "embedding_scale": "sqrt",
        "norm_affine": False,
    }
    config = resolve_model(ModelConfig(**fields), vocab_size=31, context=16)
    certificate = export_huggingface(build(config, seed=0), tmp_path / "out")
    assert certificate["largest_difference"]["float64"] < 1e-5
    with pytest.raises(ConfigError, match=r"T5's class cannot represent model\.bias = true"):
        family_for(config.model_copy(update={"bias": True}))


@pytest.mark.parametrize(("network", "form"), OFTEN)
@torch.inference_mode()
def test_answers_that_are_packed_cost_what_transformers_makes_of_each(
    tmp_path: Path, network: str, form: tuple[bool, bool]
) -> None:
    is_tied, is_scaled = form
    oracle = saved(tmp_path / "theirs", network, is_tied=is_tied, is_scaled=is_scaled)
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    generator = np.random.default_rng(0)
    examples, expected = [], []
    for number in range(9):
        read, written = (
            generator.integers(3, VOCAB_SIZE, size=size) for size in generator.integers(1, 7, 2)
        )
        sequence = PackedSequence(read, np.zeros_like(read), 0, written=written)
        examples.append(Unpacked([sequence], 0.0, 1.0, number))
        source, target = (torch.from_numpy(ids)[None] for ids in (read, written))
        logits = oracle(input_ids=source, labels=target).logits[0]
        expected.append(nn.functional.cross_entropy(logits, target[0], reduction="sum"))
    batch = pack_examples(examples, width=14, written_width=14, pad_id=0)
    assert batch.read.document_ids is not None
    order = list(batch.numbers)
    torch.testing.assert_close(
        nats_of_sequences(model, batch), torch.stack(expected)[order], rtol=0, atol=1e-9
    )
