"""Translators of transformers in and out: logits, translations, files, tokenizers."""

import json
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers
from torch import nn

from sublayer.api.run import load
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer, parse_model
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.data.tokenizers.word_bpe import read_codes
from sublayer.decode.beam import BeamSettings, search, translate_lines
from sublayer.errors import ConfigError, DataError
from sublayer.interop.foreign_config import Content
from sublayer.interop.huggingface import (
    FAMILIES,
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.seq2seq import T5
from sublayer.interop.tokenizers import read_tokenizer
from sublayer.model.cache import Cache
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.data.sentencepiece_files import EN, LINES, TEXTS, t5_model, write_marian, write_t5
from tests.interop.classes import VOCAB_SIZE
from tests.interop.folders import change_json, check_refused, close, opened, read_json
from tests.interop.tiny import config_of, tiny
from tests.model.test_published import LIMITS, in_both
from tests.sentinels import encode_with_sentinels

PLAIN = ["relu", "gelu", "gelu_new", "silu"]
GATED = [f"gated-{name}" for name in ("sigmoid", "linear", "relu", "gelu", "gelu_python", "silu")]
TRIED = [(name, place % 2 == 0, place % 4 < 2) for place, name in enumerate(PLAIN + GATED)]
"""Every network, with ties and scales in turn."""
TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
UNTIED = {"lm_head.weight": torch.ones(VOCAB_SIZE, 12)}


@pytest.mark.parametrize(("network", "is_tied", "is_scaled"), TRIED)
def test_a_t5_comes_in_and_goes_out_with_its_logits(tmp_path, network, is_tied, is_scaled):
    fields = {"feed_forward_proj": network, "scale_decoder_outputs": is_scaled}
    fields |= {"relative_attention_max_distance": 9, "layer_norm_epsilon": 0.01}
    original = tiny("t5", **fields).model()
    if not is_tied:
        original.lm_head.weight = nn.Parameter(original.shared.weight.detach().flip(0))
    original.save_pretrained(tmp_path / "theirs")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert "ignored" not in certificate
    model = load(tmp_path / "ours")
    config, scale = model.config, "sqrt" if is_scaled else "none"
    assert {value for name, value in config if name.startswith("dropout")} == {0.1, "sum"}
    assert (config.tie_embeddings, config.output_scale) == (is_tied, scale)
    places = torch.arange(12)
    check_padded_and_cached(model, original, [places < 7, places >= 4, places >= 0])
    certificate = export_huggingface(model, tmp_path / "again")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert read_json(tmp_path / "again" / "config.json")["feed_forward_proj"] == network
    once_more = read_huggingface(tmp_path / "again").model
    assert once_more.config == config
    close(once_more.state_dict(), model.state_dict(), atol=0)


@torch.inference_mode()
def check_padded_and_cached(ours, oracle, masks, pad=0, dtype=torch.float64):
    """Compare logits of three sources with padding and without, at once and in pieces."""
    generator, mask = torch.Generator().manual_seed(0), torch.stack(masks)
    size = {"high": oracle.config.vocab_size - 1, "size": (3, 12), "generator": generator}
    source, target = (torch.randint(4, **size) for _ in range(2))
    filled = source.masked_fill(~mask, pad)
    padded = oracle(input_ids=filled, attention_mask=mask.long(), decoder_input_ids=target).logits
    plain = oracle(input_ids=source, decoder_input_ids=target).logits
    assert (plain[:2] - padded[:2]).abs().max() > 1e-3
    memory, cache = ours.encode(filled, mask), Cache(ours.config, 3, 12, dtype)
    pieces = [ours.decode(piece, memory, cache) for piece in target.split([4, 1, 1, 6], dim=1)]
    whole = [ours(source, target=target).logits, ours(filled, mask, target=target).logits]
    limit = LIMITS[dtype] * max(1.0, float(plain.abs().max()))
    close([*whole, torch.cat(pieces, dim=1)], [plain, padded, padded], limit)


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


@pytest.mark.parametrize("name", ["t5", "m2m_100"])
def test_copies_and_tensors_of_former_files_are_left_out(tmp_path, name):
    original, prefix = tiny(name), "" if name == "t5" else "model."
    shared, *copies = (f"{prefix}{each}.weight" for each in TABLES)
    table, copies = original.tensors[shared], [*copies, "lm_head.weight"]
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    plain = read_huggingface(original.save(tmp_path / "plain")).model.state_dict()
    original.tensors.update({each: table.clone() for each in copies})
    original.tensors.update({unused: torch.ones(8, 3)} if name == "t5" else {})
    folder = original.save(tmp_path / "full")
    close(read_huggingface(folder).model.state_dict(), plain, atol=0)
    tensors = load_file(tmp_path / "plain" / "model.safetensors")
    del tensors[shared]
    # Files keep one of the tensors that are one.
    for kept in (copies[0], "lm_head.weight"):
        save_file({**tensors, kept: table}, folder / "model.safetensors")
        close(read_huggingface(folder).model.state_dict(), plain, atol=0)
    tensors |= {shared: table, copies[1]: table + 1}
    save_file(tensors, folder / "model.safetensors")
    check_refused(folder, r"decoder\.embed_tokens\.weight differs")


TRAINING = [line.encode() for line in LINES] * 20
NAMES = [f"<extra_id_{number}>" for number in range(5)]


def write(tokenizer, folder):
    files = T5().tokenizer_files(tokenizer, max_len=512)
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
    pair = [*theirs(TEXTS[0]).input_ids, *theirs(TEXTS[1]).input_ids]
    assert theirs(TEXTS[0], TEXTS[1]).input_ids == pair


@pytest.mark.parametrize("kind", ["trained", "published", "inside"])
def test_a_written_tokenizer_makes_the_same_ids_in_transformers(tmp_path, kind):
    folder, rules = tmp_path / "exported", {"user_defined_symbols": NAMES}
    folder.mkdir()
    if kind == "trained":
        ours = train_tokenizer("unigram", TRAINING, vocab_size=75, sentinels=5)
    else:
        published = write_t5(tmp_path / "t5", **(rules if kind == "inside" else {}))
        (published / "config.json").write_text('{"model_type": "t5"}')
        ours = load_tokenizer(published / "spiece.model", sentinels=5)
    files = write(ours, folder)
    assert files.keys() == {"spiece.model", "tokenizer.json", "tokenizer_config.json"}
    theirs = opened(folder)
    assert isinstance(theirs, transformers.T5Tokenizer)
    assert theirs.convert_tokens_to_ids(NAMES) == list(ours.sentinel_ids)
    assert set(ours.sentinel_ids) <= set(theirs.all_special_ids)
    check_same_ids(ours, theirs)
    again = read_tokenizer(folder, vocab_size=128)
    check_same_ids(again, theirs)
    assert T5().tokenizer_files(again, max_len=512) == files
    # One of both files will do.
    if kind != "inside":
        (folder / "tokenizer.json").unlink()
        check_same_ids(ours, opened(folder))
    else:
        (folder / "spiece.model").unlink()
        check_same_ids(read_tokenizer(folder, vocab_size=128), theirs)


def test_a_tokenizer_of_another_layout_has_no_class_of_its_own_and_others_no_files(tmp_path):
    model = train_tokenizer("unigram", TRAINING, vocab_size=75)
    ours = UnigramTokenizer(model.model, model.normalization, sentinels=5)
    settings = json.loads(write(ours, tmp_path)["tokenizer_config.json"])
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    text = "The CAT sat <extra_id_4> on"
    ids = encode_with_sentinels(ours, text.encode()).tolist()
    assert opened(tmp_path)(text).input_ids == [*ids, ours.sep_id]
    words = train_tokenizer("word-bpe", [b"the dog"] * 9, vocab_size=40)
    pairs = UnigramTokenizer(t5_model(model_type="bpe"), sentinels=2)
    content = parse_model(t5_model())
    content.pieces[-1].piece = "<extra_id_0>"
    named_alike = UnigramTokenizer(content.SerializeToString(), sentinels=2)
    for each in (None, train_tokenizer("bytes", []), words, pairs, named_alike):
        assert T5().tokenizer_files(each, max_len=8) == {}


END = 3


def oracle_of(name, **fields):
    pad, start = (39, 39) if name == "marian" else (1, END)
    ids = {"bos_token_id": 0, "pad_token_id": pad, "decoder_start_token_id": start}
    ids |= {"vocab_size": 40, "eos_token_id": END, "max_position_embeddings": 30}
    model = tiny(name, **{**ids, **fields}).model()
    for side in (model.model.encoder, model.model.decoder):
        side.embed_tokens.weight.data.copy_(model.model.shared.weight.data)
    return model


def check_answers(ours, theirs, beam):
    """Compare translations; in a beam those that end: transformers closes others at no cost."""
    longest, start, pad = 18, theirs.config.decoder_start_token_id, theirs.config.pad_token_id
    rng = np.random.default_rng(0)
    words = [word for word in range(4, 39) if word != pad]
    sources = [rng.choice(words, rng.integers(1, 9)) for _ in range(12)]
    settings = BeamSettings(beam=beam, penalty=1.0, max_length_offset=longest)
    found = dict(search(ours, sources, settings, end_id=END, pad_id=pad, start_id=start))
    rules = {"num_beams": beam, "length_penalty": 1.0, "early_stopping": True} if beam > 1 else {}
    rules |= {"max_new_tokens": longest + 1, "min_new_tokens": 1, "bad_words_ids": [[pad]]}
    rules |= {"do_sample": False, "forced_eos_token_id": None}
    ended = [n for n in found if all(len(each.ids) < longest for each in found[n])]
    assert ended
    for number in ended if beam > 1 else found:
        (ids,) = theirs.generate(torch.tensor([[*sources[number], END]]), **rules)
        ids = [*ids[1 : longest + 1].tolist(), END]
        assert found[number][0].ids.tolist() == ids[: ids.index(END)]


DEEP = {"encoder_layers": 1, "decoder_layers": 3, "decoder_ffn_dim": 11, "encoder_ffn_dim": 11}
VARIANTS = [
    {}, {"activation_function": "relu", "scale_embedding": True}, {"activation_function": "silu"},
    {"tie_word_embeddings": False}, {"d_model": 18, **DEEP},
]  # fmt: skip
RANDOM = [
    (name, {**fields, "seed": seed})
    for seed, name in product(range(10), ("bart", "marian"))
    for fields in [*VARIANTS, {"decoder_start_token_id": {"bart": 1, "marian": END}[name]}]
]


@pytest.mark.parametrize(("name", "fields"), rows(RANDOM, 7))
@in_both
def test_random_translators_have_the_logits_and_answers_of_their_class(
    tmp_path, name, fields, dtype
):
    theirs = oracle_of(name, dtype=dtype, **fields)
    with torch.inference_mode():  # the end is the likeliest token in so many places that texts end
        tokens = torch.arange(4, 36).view(4, 8)
        logits = theirs(tokens, decoder_input_ids=tokens.flip(1)).logits
        gaps = logits.amax(-1) - logits[..., END]
        bias = theirs.final_logits_bias[0, END].clone()
        for share in (0.7, 0.9, 1.0):
            theirs.final_logits_bias[0, END] = bias + gaps.quantile(share)
            answers = theirs.generate(tokens, do_sample=False, max_new_tokens=9, min_new_tokens=1)
            if (answers[:, 2:-1] == END).any(-1).all():
                break
    theirs.save_pretrained(tmp_path / "theirs")
    ours, places = read_huggingface(tmp_path / "theirs").model, torch.arange(12)
    assert ours.embedding.weight.dtype == dtype
    masks = [places < 3, places < 5, places < 12]
    check_padded_and_cached(ours, theirs, masks, theirs.config.pad_token_id, dtype)
    for beam in (1, 4):
        check_answers(ours, theirs, beam)


def test_an_m2m100_is_the_same_padded_cached_and_in_a_beam(tmp_path):
    theirs, places = oracle_of("m2m_100", tie_word_embeddings=False), torch.arange(12)
    with torch.no_grad():
        # Texts end.
        theirs.lm_head.weight.mul_(0.2)
        offset = theirs.model.decoder.layer_norm.bias
        theirs.lm_head.weight[END] += 3.5 * offset / offset.square().sum()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_huggingface(tmp_path / "theirs").model
    masks = [places < 3, places < 5, places < 12]
    check_padded_and_cached(ours.double(), theirs, masks, theirs.config.pad_token_id)
    check_answers(ours, theirs, 4)


SENTENCES = [
    "Two  young, White males are outside near many bushes.",
    "Zwei Männer (in Hüten) hören ein Lied; „Straße“ \u00a0steht drauf!",
    "ΟΔΟΣ, the well-known street\tof 12,345 o'clocks İstanbul.", "",
]  # fmt: skip


def vocabulary_of(kind, folder):
    text = "\n".join(SENTENCES * 4).encode()
    if kind == "unigram":
        return train_tokenizer(kind, [text], vocab_size=300, keep_accents=True, lowercase=False)
    trained = train_tokenizer("word-bpe", [text], vocab_size=600)
    if kind == "word-bpe":
        return trained
    merges, pieces = trained.content()["merges"], trained.content()["pieces"]
    if kind == "codes":
        codes = "".join(f"{left} {right}\n" for left, right in merges)
        (folder / "codes").write_text(f"#version: 0.2\n{codes}")
        words = (f"{piece}@@".replace("</w>@@", "") for piece in reversed(pieces))
        (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
        return read_codes(folder / "codes", folder / "dict.txt")
    specials = ["<pad>", "</s>", "<unk>"]
    numbers = {name: id_ for id_, name in enumerate([*specials, *pieces])}
    rules = {"unk_token": "<unk>", "end_of_word_suffix": "</w>"}
    library = Library(models.BPE(numbers, [tuple(each) for each in merges], **rules))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.BPEDecoder(suffix="</w>")
    library.add_special_tokens(specials)
    return SubwordTokenizer(library)


def pair_of(vocabulary, *rules, **more):
    sides = (LanguageRules(language, *rules, **more) for language in ("en", "de"))
    return BilingualTokenizer(vocabulary, *sides)


def translator_of(tokenizer, name="m2m_100", **fields):
    first = {"first_position": tokenizer.pad_id + 1} if name == "m2m_100" else {}
    given = {"vocab_size": tokenizer.vocab_size, "max_len": 96, **first, **fields}
    return TextModel(build(config_of(name, **given), seed=0).eval(), tokenizer)


@pytest.mark.parametrize("kind, lowers", [
    ("word-bpe", True), ("unigram", False), ("codes", False), ("library", True),
])  # fmt: skip
def test_transformers_makes_the_same_ids(tmp_path, kind, *, lowers):
    ours = pair_of(vocabulary_of(kind, tmp_path), lowers=lowers)
    assert "tokenizer" not in export_huggingface(translator_of(ours), tmp_path / "out")
    theirs = opened(tmp_path / "out")
    special = (theirs.eos_token_id, theirs.pad_token_id, theirs.unk_token_id)
    assert special == (ours.sep_id, ours.pad_id, ours.unk_id)
    for line, ids in zip(SENTENCES, ours.encode_source(SENTENCES), strict=True):
        assert theirs(line).input_ids == [*ids, ours.sep_id], line
        if ours.unk_id not in ids:
            text = theirs.decode([*ids, ours.sep_id], skip_special_tokens=True)
            assert text.split() == ours.words(ids), line


def test_words_of_moses_rules_are_read_one_by_one(tmp_path):
    cased = pair_of(vocabulary_of("word-bpe", tmp_path), "normalize", divides_hyphens=True)
    ours = pair_of(cased.vocabulary, "normalize", divides_hyphens=True, lowers=True)
    certificate = export_huggingface(translator_of(ours), tmp_path / "out")
    assert "tokenizer.perl -a -no-escape -l en" in certificate["tokenizer"]
    theirs = opened(tmp_path / "out")
    for line, ids in zip(SENTENCES, ours.encode_source(SENTENCES), strict=True):
        assert theirs(" ".join(cased.source.words(line))).input_ids == [*ids, ours.sep_id], line


@pytest.mark.parametrize("kind, moses, name", [
    ("codes", "none", "m2m_100"), ("library", "tokenize", "m2m_100"), ("unigram", "none", "t5"),
])  # fmt: skip
def test_an_export_that_comes_back_translates_the_same(tmp_path, kind, moses, name):
    ours = pair_of(vocabulary_of(kind, tmp_path), moses, lowers=True)
    model = translator_of(ours, name)
    export_huggingface(model, tmp_path / "out")
    import_huggingface(tmp_path / "out", tmp_path / "back")
    back = load(tmp_path / "back")
    assert (back.tokenizer.source, back.tokenizer.target) == (ours.source, ours.target)
    encoded = (each.encode_source(SENTENCES) for each in (ours, back.tokenizer))
    assert all(map(np.array_equal, *encoded))
    settings = BeamSettings(beam=2, max_length_offset=9)
    found = (translate_lines(each, SENTENCES, settings) for each in (model, back))
    for one, other in zip(*found, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        # An untrained model may write the unknown, of which a tokenizer.json has no text.
        known = one.ids[one.ids != ours.unk_id]
        assert ours.write(known) == back.tokenizer.write(other.ids)
    ends = {"eos_token_id": 5} | ({} if name == "t5" else {"decoder_start_token_id": 5})
    change_json(tmp_path / "out" / "config.json", **ends)
    said = import_huggingface(tmp_path / "out", tmp_path / "other")["ignored"]
    assert said == f"eos_token_id = 5 of config.json: the tokenizer's, {ours.sep_id}, counts"


def test_a_first_token_that_generation_forces_is_said_and_kept(tmp_path):
    folder = tiny("bart").save(tmp_path / "theirs", forced_bos_token_id=0)
    assert "forced_bos_token_id" in import_huggingface(folder, tmp_path / "ours")["kept"]
    export_huggingface(load(tmp_path / "ours"), tmp_path / "back")
    assert read_json(tmp_path / "back" / "generation_config.json")["forced_bos_token_id"] == 0


def test_marian_is_translated_with_by_its_own_files(tmp_path):
    ids = json.loads((write_marian(tmp_path / "theirs") / "vocab.json").read_text())
    pad, end = ids["<pad>"], ids["</s>"]
    fields = {"vocab_size": len(ids), "max_position_embeddings": 60, "pad_token_id": pad}
    fields |= {"eos_token_id": end, "forced_eos_token_id": end, "decoder_start_token_id": pad}
    fields |= {"d_model": 8, "encoder_layers": 1, "encoder_ffn_dim": 9, "decoder_ffn_dim": 9}
    fields |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    theirs = tiny("marian", dtype=torch.float32, **fields).model()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        theirs.final_logits_bias.zero_()
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.normal_(generator=generator)  # so wide that translations differ
    theirs.save_pretrained(tmp_path / "theirs")
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model, tokenizer = load(tmp_path / "ours"), opened(tmp_path / "theirs")
    settings, texts = BeamSettings(beam=1, max_length_offset=7), []
    limits = {"min_new_tokens": 1, "max_new_tokens": 8, "bad_words_ids": [[pad]]}
    for line, found in zip(EN, translate_lines(model, EN, settings), strict=True):
        given = tokenizer(line, return_tensors="pt")
        (made,) = theirs.generate(**given, **limits)
        text = tokenizer.decode(made, skip_special_tokens=True, use_source_tokenizer=False)
        texts.append(text)
        assert model.tokenizer.write(found.ids) == " ".join(text.replace("<unk>", " ⁇ ").split())
    assert len(set(texts)) > 1
    export_huggingface(model, tmp_path / "again")
    again = opened(tmp_path / "again")
    assert type(again) is type(tokenizer)
    for given in ({"text": EN}, {"text_target": EN}):
        assert again(**given).input_ids == tokenizer(**given).input_ids
    import_huggingface(tmp_path / "again", tmp_path / "back")
    assert load(tmp_path / "back").tokenizer.fingerprint == model.tokenizer.fingerprint


def test_rules_that_marian_lacks_stay_behind(tmp_path):
    files = load_tokenizer(write_marian(tmp_path / "files"))
    certificate = export_huggingface(translator_of(pair_of(files, lowers=True)), tmp_path / "low")
    assert "lowercases text" in certificate["tokenizer"]
    assert not (tmp_path / "low" / "vocab.json").exists()
    export_huggingface(translator_of(pair_of(files)), tmp_path / "out")
    (tmp_path / "out" / "target_vocab.json").write_text("{}")
    certificate = import_huggingface(tmp_path / "out", tmp_path / "back")
    note = "its languages have separate vocabularies (target_vocab.json)"
    assert certificate["tokenizer"] == note
    assert load(tmp_path / "back").tokenizer is None


def test_damaged_rules_are_refused_and_tokenizers_of_other_use_left_with_a_reason(tmp_path):
    ours = pair_of(vocabulary_of("word-bpe", tmp_path))
    with pytest.raises(ConfigError, match="model.first_position"):
        export_huggingface(translator_of(ours, first_position=7), tmp_path / "shifted")
    export_huggingface(translator_of(ours), tmp_path / "out")
    settings = tmp_path / "out" / "tokenizer_config.json"
    kept = settings.read_text()
    damaged = (([1], "must list the rules of two"), ([{}, {}], "damaged: it must have"))
    for sides, message in damaged:
        change_json(settings, sublayer_sides=sides)
        check_refused(tmp_path / "out", f"tokenizer_config.json: .*{message}", DataError)
    settings.write_text(kept)
    file = tmp_path / "out" / "tokenizer.json"
    processor = read_json(file)["post_processor"]
    processor["single"].insert(0, {"SpecialToken": {"id": "</s>", "type_id": 0}})
    change_json(file, post_processor=processor)
    certificate = import_huggingface(tmp_path / "out", tmp_path / "around")
    assert "adds more to a text than an end token" in certificate["tokenizer"]
    assert load(tmp_path / "around").tokenizer is None
