"""T5 of transformers in and out: networks, ties and scales, former files, tokenizers, beams."""

import json
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from sublayer.config.architecture.feedforward import FFNS
from sublayer.data.sentencepiece.model_file import parse_model
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.classes import FAMILIES
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.huggingface.folder_tokenizer import read_tokenizer
from sublayer.interop.t5.t5_networks import NETWORKS, network_fields, network_name
from sublayer.interop.t5.t5_tokenizer import t5_files
from sublayer.loading import load
from sublayer.model.context.cache import Cache
from tests.data.sentencepiece_files import LINES, TEXTS, t5_model, write_t5
from tests.interop.folders import assert_same_bits, check_refused, opened, read_json
from tests.interop.tiny import VOCAB_SIZE, theirs, tiny
from tests.sentinels import encode_with_sentinels

PLAIN = ["relu", "gelu", "gelu_new", "silu"]
GATED = ["gated-sigmoid", "gated-linear", "gated-relu", "gated-gelu", "gated-silu"]
TRIED = [(name, place % 2 == 0, place % 4 < 2) for place, name in enumerate(PLAIN + GATED)]
"""Every network, with ties and scales in turn."""


@pytest.mark.parametrize(("network", "is_tied", "is_scaled"), TRIED)
def test_a_folder_comes_in_and_goes_out_with_the_same_logits_and_bits(
    tmp_path, network, is_tied, is_scaled
):
    fields = {"feed_forward_proj": network, "scale_decoder_outputs": is_scaled}
    original = tiny("t5", **fields).model()
    if not is_tied:
        original.lm_head.weight = nn.Parameter(original.shared.weight.detach().flip(0))
    original.save_pretrained(tmp_path / "theirs")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert "ignored" not in certificate
    model = load(tmp_path / "ours")
    config = model.config
    assert {value for name, value in config if name.startswith("dropout")} == {0.1, "sum"}
    found = (config.tie_embeddings, config.output_scale)
    assert found == (is_tied, "sqrt" if is_scaled else "none")
    check_padded_and_cached(model, original)
    export_huggingface(model, tmp_path / "again")
    assert read_json(tmp_path / "again" / "config.json")["feed_forward_proj"] == network
    reloaded = type(original).from_pretrained(tmp_path / "again", dtype=torch.float64)
    torch.testing.assert_close(theirs(reloaded), theirs(original), rtol=0, atol=1e-9)
    once_more = read_huggingface(tmp_path / "again")
    assert once_more.config == config
    assert_same_bits(once_more.state_dict(), model.state_dict())


@torch.inference_mode()
def check_padded_and_cached(ours, oracle):
    """Compare logits of sources with padding behind, before and none, at once and in pieces."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randint(2, VOCAB_SIZE, (3, 12), generator=generator) for _ in range(2))
    target[:, 0] = 0
    places = torch.arange(12)
    mask = torch.stack([places < 7, places >= 4, places >= 0])
    padded = oracle(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    plain = oracle(input_ids=source, decoder_input_ids=target).logits
    assert (plain[:2] - padded[:2]).abs().max() > 1e-3
    memory, cache = ours.encode(source, mask), Cache(ours.config, 3, 12, torch.float64)
    pieces = [ours.decode(piece, memory, cache) for piece in target.split([4, 1, 1, 6], dim=1)]
    whole = [ours(source, target=target).logits, ours(source, mask, target=target).logits]
    found, expected = [*whole, torch.cat(pieces, dim=1)], [plain, padded, padded]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_networks_have_names_that_are_read_as_they():
    for ffn, gelu in product(FFNS, ("exact", "tanh")):
        found = network_fields(network_name(ffn, gelu))
        expected = gelu if FFNS[ffn].activation == "gelu" else "tanh"
        assert found == {"ffn": ffn, "gelu": expected}
    assert network_name("geglu", "tanh") == "gated-gelu"
    assert {network_fields(name)["ffn"] for name in NETWORKS} == set(FFNS)


UNTIED = {"lm_head.weight": torch.ones(VOCAB_SIZE, 12)}


@pytest.mark.parametrize("fields, more, form", [
    # v1.0 says nothing of ties and scales; v1.1 that nothing is tied.
    ({}, {}, (True, "sqrt")), ({"tie_word_embeddings": False}, UNTIED, (False, "none")),
    # As today's transformers writes v1.1.
    ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, UNTIED, (False, "none")),
    ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, UNTIED, (False, "sqrt")),
])  # fmt: skip
def test_released_forms_of_ties_and_scales_are_read(fields, more, form):
    original, family = tiny("t5"), FAMILIES["t5"]
    content = family.fields.read(Content("config.json", {**original.fields, **fields}))
    weights = family.prepare(content, {**original.tensors, **more})
    config = family.read_config(content, weights)
    assert (config.tie_embeddings, config.output_scale) == form


def test_copies_and_tensors_of_former_files_are_left_out(tmp_path):
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
    check_refused(folder, r"decoder\.embed_tokens\.weight that differs")


@torch.no_grad()
def test_a_beam_has_the_scores_of_transformers(tmp_path):
    original = tiny("t5", vocab_size=7, feed_forward_proj="gated-gelu")
    model, oracle = read_huggingface(original.save(tmp_path / "theirs")), original.model()
    source, settings = np.array([3, 5, 2, 6, 4]), BeamSettings(3, penalty=1.0, max_length_offset=9)
    ((_, found),) = search(model, [source], settings, end_id=1, pad_id=0, start_id=0)
    for each in found:
        target = torch.tensor([[0, *each.ids, 1]])
        logits = oracle(torch.tensor([[*source, 1]]), decoder_input_ids=target[:, :-1]).logits
        log_p = logits[0].log_softmax(-1)[range(target.shape[1] - 1), target[0, 1:]].sum()
        assert each.log_p == pytest.approx(log_p.item(), abs=1e-9)


TRAINING = [line.encode() for line in LINES] * 20
NAMES = [f"<extra_id_{number}>" for number in range(5)]


def tokenizer_of(kind, folder):
    if kind == "trained":
        return train_tokenizer("unigram", TRAINING, vocab_size=75, sentinels=5)
    rules = {"user_defined_symbols": NAMES} if kind == "inside" else {}
    path = write_t5(folder, **rules) / "spiece.model"
    return load_tokenizer(path, sentinels=5)


def write(tokenizer, folder):
    files = t5_files(tokenizer, max_len=512)
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files


def check_same_ids(ours, theirs):
    assert len(theirs) == ours.vocab_size
    assert (theirs.pad_token_id, theirs.eos_token_id) == (ours.pad_id, ours.sep_id)
    assert theirs.model_max_length == 512
    for text in [*LINES, *TEXTS]:
        ids = encode_with_sentinels(ours, text.encode()).tolist()
        assert theirs(text).input_ids == [*ids, ours.sep_id], text
    first, second = (encode_with_sentinels(ours, text.encode()).tolist() for text in TEXTS[:2])
    pair = [*first, ours.sep_id, *second, ours.sep_id]
    assert theirs(TEXTS[0], TEXTS[1]).input_ids == pair


@pytest.mark.parametrize("kind", ["trained", "published", "inside"])
def test_a_written_tokenizer_makes_the_same_ids_in_transformers(tmp_path, kind):
    ours = tokenizer_of(kind, tmp_path / "t5")
    folder = tmp_path / "exported"
    files = write(ours, folder)
    assert files.keys() == {"spiece.model", "tokenizer.json", "tokenizer_config.json"}
    theirs = opened(folder)
    assert isinstance(theirs, transformers.T5Tokenizer)
    assert theirs.convert_tokens_to_ids(NAMES) == list(ours.sentinel_ids)
    assert set(ours.sentinel_ids) <= set(theirs.all_special_ids)
    check_same_ids(ours, theirs)
    again = read_tokenizer(folder, vocab_size=128)
    assert again.fingerprint == ours.fingerprint
    assert t5_files(again, max_len=512) == files
    # One of both files will do.
    if kind != "inside":
        (folder / "tokenizer.json").unlink()
        check_same_ids(ours, opened(folder))
    else:
        (folder / "spiece.model").unlink()
        check_same_ids(read_tokenizer(folder, vocab_size=128), theirs)


def test_a_tokenizer_of_another_layout_has_no_class_of_its_own(tmp_path):
    model = train_tokenizer("unigram", TRAINING, vocab_size=75)
    ours = UnigramTokenizer(model.model, model.normalization, sentinels=5)
    files = write(ours, tmp_path)
    settings = json.loads(files["tokenizer_config.json"])
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    text = "The CAT sat <extra_id_4> on"
    ids = encode_with_sentinels(ours, text.encode()).tolist()
    assert opened(tmp_path)(text).input_ids == [*ids, ours.sep_id]


def test_tokenizers_that_transformers_lacks_have_no_files():
    words = train_tokenizer("word-bpe", [b"the dog"] * 9, vocab_size=40)
    pairs = UnigramTokenizer(t5_model(model_type="bpe"), sentinels=2)
    content = parse_model(t5_model())
    content.pieces[-1].piece = "<extra_id_0>"
    named_alike = UnigramTokenizer(content.SerializeToString(), sentinels=2)
    for each in (None, train_tokenizer("bytes", []), words, pairs, named_alike):
        assert t5_files(each, max_len=8) == {}
