"""M2M100 and Marian of transformers: logits, translations and tokenizers, in and out."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.bpe_files import read_codes
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.decode.translate import translate_lines
from sublayer.errors import ConfigError, DataError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from tests.data.sentencepiece_files import EN, spm, write_marian
from tests.interop.exported import config_of
from tests.interop.folders import change_json, check_refused, opened, read_json
from tests.interop.tiny import tiny

CLASSES = ["m2m_100", "marian"]
END = 3


def oracle_of(name, **fields):
    """Build a translator of transformers with random weights and ids of its own."""
    pad, start, more = (39, 39, {"forced_eos_token_id": END}) if name == "marian" else (1, END, {})
    ids = {"bos_token_id": 0, "pad_token_id": pad, "decoder_start_token_id": start, **more}
    given = {"vocab_size": 40, "max_position_embeddings": 30, "eos_token_id": END, **fields}
    return tiny(name, **given, **ids).model()


@pytest.mark.parametrize("name", CLASSES)
@torch.no_grad()
def test_logits_padded_and_cached_are_the_same(tmp_path, name):
    theirs = oracle_of(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_huggingface(tmp_path / "theirs").double()
    pad, generator = theirs.config.pad_token_id, torch.Generator().manual_seed(4)
    drawn = torch.randint(4, theirs.config.vocab_size - 1, (3, 17), generator=generator)
    source, target = drawn[:, :8], drawn[:, 8:]
    mask = torch.arange(8) < torch.tensor([8, 3, 5])[:, None]
    padded = source.masked_fill(~mask, pad)
    memory, kept = ours.encode(padded, mask), Cache(ours.config, 3, 9, torch.float64)
    encoded, past = theirs.get_encoder()(padded, attention_mask=mask.long()), None
    for token in target.split(1, 1):
        rules = {"attention_mask": mask.long(), "past_key_values": past, "use_cache": True}
        output = theirs(encoder_outputs=encoded, decoder_input_ids=token, **rules)
        past = output.past_key_values
        assert (ours.decode(token, memory, kept) - output.logits).abs().max() < 1e-9
    whole = ours(padded, mask, target=target).logits
    expected = theirs(padded, attention_mask=mask.long(), decoder_input_ids=target).logits
    assert (whole - expected).abs().max() < 1e-9


@pytest.mark.parametrize(("name", "beam"), [("m2m_100", 4), ("marian", 1)])
def test_translations_equal_those_of_transformers(tmp_path, name, beam):
    # Texts that end: transformers closes those that do not at no cost, and without a length of its
    # own for each.
    longest, theirs = 18, oracle_of(name, tie_word_embeddings=False)
    with torch.no_grad():
        for side in (theirs.model.encoder, theirs.model.decoder):
            side.embed_tokens.weight.copy_(theirs.model.shared.weight)
        theirs.lm_head.weight.mul_(0.2)
        if name == "marian":
            theirs.final_logits_bias.mul_(0.2)[:, END] += 3.5
        else:
            offset = theirs.model.decoder.layer_norm.bias
            theirs.lm_head.weight[END] += 3.5 * offset / offset.square().sum()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_huggingface(tmp_path / "theirs")
    start, pad = theirs.config.decoder_start_token_id, theirs.config.pad_token_id
    rng = np.random.default_rng(0)
    words = [word for word in range(4, 39) if word != pad]
    sources = [rng.choice(words, rng.integers(1, 9)) for _ in range(12)]
    settings = BeamSettings(beam=beam, penalty=1.0, max_length_offset=longest)
    found = dict(search(ours, sources, settings, end_id=END, pad_id=pad, start_id=start))
    rules = {"num_beams": beam, "length_penalty": 1.0, "do_sample": False}
    n_compared, rules["early_stopping"] = 0, beam > 1
    rules |= {"max_new_tokens": longest + 1, "min_new_tokens": 1, "bad_words_ids": [[pad]]}
    for number, source in enumerate(sources):
        if any(len(each.ids) >= longest for each in found[number]):
            continue
        n_compared += 1
        (ids,) = theirs.generate(torch.tensor([[*source, END]]), **rules)
        assert found[number][0].ids.tolist() == ids[1 : ids.tolist().index(END, 1)].tolist()
    assert n_compared > 5


LINES = [
    "Two  young, White males are outside near many bushes.",
    "Zwei Männer (in Hüten) hören ein Lied; „Straße“ \u00a0steht drauf!",
    "ΟΔΟΣ, the well-known street\tof 12,345 o'clocks İstanbul.", "",
]  # fmt: skip


def vocabulary_of(kind, folder):
    text = "\n".join(LINES * 4).encode()
    if kind == "unigram":
        return train_tokenizer(kind, [text], vocab_size=300, keeps_text=True)
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
    model = build(config_of(name, **given), seed=0).eval()
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("kind, lowers", [
    ("word-bpe", True), ("unigram", False), ("codes", False), ("library", True),
])  # fmt: skip
def test_transformers_makes_the_same_ids(tmp_path, kind, *, lowers):
    ours = pair_of(vocabulary_of(kind, tmp_path), lowers=lowers)
    assert "tokenizer" not in export_huggingface(translator_of(ours), tmp_path / "out")
    theirs = opened(tmp_path / "out")
    special = (theirs.eos_token_id, theirs.pad_token_id, theirs.unk_token_id)
    assert special == (ours.sep_id, ours.pad_id, ours.unk_id)
    for line, ids in zip(LINES, ours.encode_source(LINES), strict=True):
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
    for line, ids in zip(LINES, ours.encode_source(LINES), strict=True):
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
    encoded = (each.encode_source(LINES) for each in (ours, back.tokenizer))
    assert all(map(np.array_equal, *encoded))
    settings = BeamSettings(beam=2, max_length_offset=9)
    found = (translate_lines(each, LINES, settings) for each in (model, back))
    for one, other in zip(*found, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        # An untrained model may write the unknown, of which a tokenizer.json has no text.
        known = one.ids[one.ids != ours.unk_id]
        assert ours.write(known) == back.tokenizer.write(other.ids)


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
    assert "lower case" in certificate["tokenizer"]
    assert not (tmp_path / "low" / "vocab.json").exists()
    export_huggingface(translator_of(pair_of(files)), tmp_path / "out")
    (tmp_path / "out" / "target_vocab.json").write_text("{}")
    certificate = import_huggingface(tmp_path / "out", tmp_path / "back")
    assert certificate["tokenizer"] == "its languages have a vocabulary each (target_vocab.json)"
    assert load(tmp_path / "back").tokenizer is None


def test_vocabularies_that_transformers_lacks_stay_behind_with_a_reason(tmp_path):
    codes, names = tmp_path / "codes", tmp_path / "dict.txt"
    names.write_text("abc 3\na@@ 1\n")
    codes.write_text("a b\nab c</w>\n")
    apart = read_codes(codes)
    codes.write_text("#version: 0.2\na b\nab c</w>\n")
    for vocabulary, message in (
        (apart, "its codes are of version 0.1"),
        (read_codes(codes, names), "its dictionary lacks 3 pieces"),
        (UnigramTokenizer(spm(LINES[:2], 70, model_type="bpe")), "is not a plain unigram one"),
    ):
        out = tmp_path / message[-9:]
        certificate = export_huggingface(translator_of(pair_of(vocabulary)), out)
        assert message in certificate["tokenizer"]
        assert not list(out.glob("tokenizer*.json"))


def test_a_tokenizer_that_no_translator_can_use_is_left_with_a_reason(tmp_path):
    ours = pair_of(vocabulary_of("word-bpe", tmp_path))
    export_huggingface(translator_of(ours), tmp_path / "out")
    file = tmp_path / "out" / "tokenizer.json"
    processor = read_json(file)["post_processor"]
    processor["single"].insert(0, {"SpecialToken": {"id": "</s>", "type_id": 0}})
    change_json(file, post_processor=processor)
    certificate = import_huggingface(tmp_path / "out", tmp_path / "around")
    assert "puts more around a text than an end behind it" in certificate["tokenizer"]
    assert load(tmp_path / "around").tokenizer is None
    file.rename(file.with_name("source.spm"))
    certificate = import_huggingface(tmp_path / "out", tmp_path / "other")
    assert certificate["tokenizer"].endswith("and the folder has source.spm")


def test_damaged_rules_and_other_vocabularies_are_refused(tmp_path):
    ours = pair_of(vocabulary_of("word-bpe", tmp_path))
    with pytest.raises(ConfigError, match="model.first_position"):
        export_huggingface(translator_of(ours, first_position=7), tmp_path / "shifted")
    export_huggingface(translator_of(ours), tmp_path / "out")
    settings = tmp_path / "out" / "tokenizer_config.json"
    damaged = (([1], "is not the rules of two"), ([{}, {}], "the rules of a language are damaged"))
    for sides, message in damaged:
        change_json(settings, sublayer_sides=sides)
        check_refused(tmp_path / "out", f"tokenizer_config.json: .*{message}", DataError)
