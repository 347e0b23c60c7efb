"""Tokenizers go along with translators: the same ids and words in transformers, and back."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.bpe_files import read_codes
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.decode.beam_settings import BeamSettings
from sublayer.decode.translate import translate_lines
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.interop.huggingface.exchange import export_huggingface, import_huggingface
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from tests.data.sentencepiece.marian import EN, write_marian
from tests.interop.tiny import tiny

MADE_UP = [
    "Two  young, White males are outside near many bushes.",
    "Zwei Männer (in Hüten) hören ein Lied; „Straße“ \u00a0steht drauf!",
    "ΟΔΟΣ, the well-known street\tof 12,345 o'clocks İstanbul.",
    "",
] * 4


@pytest.fixture(scope="module")
def lines(request: pytest.FixtureRequest) -> list[str]:
    """Captions of both languages and made-up lines; these alone where there are no captions."""
    try:
        folder = request.getfixturevalue("real_data") / "multi30k"
    except pytest.skip.Exception:
        return MADE_UP
    texts = [
        gzip.decompress((folder / f"val.{each}.gz").read_bytes()).decode() for each in ("en", "de")
    ]
    return [*MADE_UP, *(line for text in texts for line in text.splitlines()[:60])]


def vocabulary_of(kind: str, lines: list[str], folder: Path) -> Tokenizer:
    text = "\n".join(lines).encode()
    if kind == "unigram":
        return train_tokenizer(kind, [text], vocab_size=300, keeps_text=True)
    trained = train_tokenizer("word-bpe", [text], vocab_size=600)
    if kind == "word-bpe":
        return trained
    merges, pieces = trained.content()["merges"], trained.content()["pieces"]
    if kind == "codes":
        (folder / "codes").write_text(
            "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges)
        )
        names = [
            piece.removesuffix("</w>") if piece.endswith("</w>") else f"{piece}@@"
            for piece in pieces
        ]
        (folder / "dict.txt").write_text("".join(f"{name} 1\n" for name in reversed(names)))
        return read_codes(folder / "codes", folder / "dict.txt")
    specials = ["<pad>", "</s>", "<unk>"]
    numbers = {name: id_ for id_, name in enumerate([*specials, *pieces])}
    library = Library(
        models.BPE(
            numbers, [tuple(each) for each in merges], unk_token="<unk>", end_of_word_suffix="</w>"
        )
    )
    library.pre_tokenizer, library.decoder = (
        pre_tokenizers.WhitespaceSplit(),
        decoders.BPEDecoder(suffix="</w>"),
    )
    library.add_special_tokens(specials)
    return SubwordTokenizer(library)


T5 = {"positions": "relative", "norm": "rms", "bias": False, "attention_scale": "none"}


def translator_of(tokenizer: BilingualTokenizer, **fields: Any) -> EncoderDecoder:
    assert tokenizer.pad_id is not None
    m2m = {"positions": "sinusoidal", "sinusoids": "fairseq"}
    given = fields or {**m2m, "first_position": tokenizer.pad_id + 1}
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "ffn": "relu"}
    config = ModelConfig(kind="encoder-decoder", **{**sizes, **given})
    resolved = resolve_model(config, vocab_size=tokenizer.vocab_size, context=96)
    model = build(resolved, seed=0).eval()
    assert isinstance(model, EncoderDecoder)
    model.tokenizer = tokenizer
    return model


def opened(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "lowers"),
    [("word-bpe", True), ("unigram", False), ("codes", False), ("library", True)],
)
def test_transformers_makes_the_same_ids(
    tmp_path: Path, lines: list[str], kind: str, *, lowers: bool
) -> None:
    sides = (LanguageRules("en", lowers=lowers), LanguageRules("de", lowers=lowers))
    ours = BilingualTokenizer(vocabulary_of(kind, lines, tmp_path), *sides)
    certificate = export_huggingface(translator_of(ours), tmp_path / "out")
    theirs = opened(tmp_path / "out")
    assert "tokenizer" not in certificate
    assert (theirs.eos_token_id, theirs.pad_token_id, theirs.unk_token_id) == (
        ours.sep_id,
        ours.pad_id,
        ours.unk_id,
    )
    for line, ids in zip(lines, ours.encode_source(lines), strict=True):
        assert theirs(line).input_ids == [*ids, ours.sep_id], line
        if ours.unk_id not in ids:
            assert theirs.decode(
                [*ids, ours.sep_id], skip_special_tokens=True
            ).split() == ours.words(ids), line


def test_words_of_moses_rules_are_read_one_by_one(tmp_path: Path, lines: list[str]) -> None:
    sides = [
        LanguageRules(language, "normalize", divides_hyphens=True, lowers=True)
        for language in ("en", "de")
    ]
    ours = BilingualTokenizer(vocabulary_of("word-bpe", lines, tmp_path), *sides)
    certificate = export_huggingface(translator_of(ours), tmp_path / "out")
    assert "tokenizer.perl -a -no-escape -l en" in certificate["tokenizer"]
    assert json.loads((tmp_path / "out" / "certificate.json").read_text()) == certificate
    cased, theirs = LanguageRules("en", "normalize", divides_hyphens=True), opened(tmp_path / "out")
    for line, ids in zip(lines[:60], ours.encode_source(lines[:60]), strict=True):
        assert theirs(" ".join(cased.words(line))).input_ids == [*ids, ours.sep_id], line


@pytest.mark.parametrize(
    ("kind", "moses", "fields"),
    [
        ("word-bpe", "none", {}),
        ("codes", "none", {}),
        ("library", "tokenize", {}),
        ("unigram", "tokenize", T5),
    ],
)
def test_an_export_that_comes_back_translates_the_same(
    tmp_path: Path, lines: list[str], kind: str, moses: Any, fields: dict[str, Any]
) -> None:
    sides = (LanguageRules("en", moses, lowers=True), LanguageRules("de", moses, lowers=True))
    ours = BilingualTokenizer(vocabulary_of(kind, lines, tmp_path), *sides)
    model = translator_of(ours, **fields)
    export_huggingface(model, tmp_path / "out")
    import_huggingface(tmp_path / "out", tmp_path / "back")
    back = load(tmp_path / "back")
    assert isinstance(back, EncoderDecoder) and isinstance(back.tokenizer, BilingualTokenizer)
    assert (back.tokenizer.source, back.tokenizer.target) == sides
    given = lines[:60]
    for one, other in zip(
        ours.encode_source(given), back.tokenizer.encode_source(given), strict=True
    ):
        assert one.tolist() == other.tolist()
    settings = BeamSettings(beam=2, max_length_offset=9)
    for one, other in zip(
        *(translate_lines(each, given[:6], settings) for each in (model, back)), strict=True
    ):
        assert one.ids.tolist() == other.ids.tolist()
        # An untrained model may write the unknown, of which a tokenizer.json has no text.
        known = one.ids[one.ids != ours.unk_id]
        assert ours.write(known) == back.tokenizer.write(other.ids)


def test_a_vocabulary_without_padding_goes_along(tmp_path: Path) -> None:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(MADE_UP[:2] * 9),
        model_writer=model,
        vocab_size=70,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    ours = BilingualTokenizer(
        UnigramTokenizer(model.getvalue()), LanguageRules("en"), LanguageRules("de")
    )
    export_huggingface(translator_of(ours), tmp_path / "out")
    theirs = opened(tmp_path / "out")
    assert (theirs.pad_token, theirs.eos_token) == ("<s>", "</s>")
    assert theirs(MADE_UP[0]).input_ids == [*ours.encode_source(MADE_UP[:1])[0], ours.sep_id]
    import_huggingface(tmp_path / "out", tmp_path / "back")
    back = load(tmp_path / "back").tokenizer
    assert (back.pad_id, back.sep_id) == (ours.pad_id, ours.sep_id) == (1, 2)


def test_marian_is_translated_with_by_its_own_files(tmp_path: Path) -> None:
    ids = json.loads((write_marian(tmp_path / "theirs") / "vocab.json").read_text())
    pad, end = ids["<pad>"], ids["</s>"]
    fields = {"vocab_size": len(ids), "max_position_embeddings": 60, "pad_token_id": pad}
    ends = {"eos_token_id": end, "forced_eos_token_id": end, "decoder_start_token_id": pad}
    fields |= {"d_model": 8, "encoder_layers": 1, "encoder_ffn_dim": 9, "decoder_ffn_dim": 9}
    fields |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    theirs = tiny("marian", dtype=torch.float32, **fields, **ends).model()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        theirs.final_logits_bias.zero_()
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                # So wide that translations differ.
                parameter.normal_(generator=generator)
    theirs.save_pretrained(tmp_path / "theirs")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert "tokenizer" not in certificate
    model, tokenizer = load(tmp_path / "ours"), opened(tmp_path / "theirs")
    assert isinstance(model, EncoderDecoder) and isinstance(model.tokenizer, BilingualTokenizer)
    assert [side.language for side in (model.tokenizer.source, model.tokenizer.target)] == [
        "en",
        "de",
    ]
    settings = BeamSettings(beam=1, max_length_offset=7)
    texts = []
    for line, found in zip(EN, translate_lines(model, EN, settings), strict=True):
        given = tokenizer(line, return_tensors="pt")
        (made,) = theirs.generate(
            **given, min_new_tokens=1, max_new_tokens=8, bad_words_ids=[[pad]]
        )
        text = tokenizer.decode(made, skip_special_tokens=True, use_source_tokenizer=False)
        texts.append(text)
        assert model.tokenizer.write(found.ids) == " ".join(text.replace("<unk>", " ⁇ ").split())
    assert len(set(texts)) > 1
    export_huggingface(model, tmp_path / "again")
    again = opened(tmp_path / "again")
    assert type(again) is type(tokenizer)
    for line in EN:
        assert again(line).input_ids == tokenizer(line).input_ids
        assert again(text_target=line).input_ids == tokenizer(text_target=line).input_ids
    import_huggingface(tmp_path / "again", tmp_path / "back")
    assert load(tmp_path / "back").tokenizer.fingerprint == model.tokenizer.fingerprint


def test_rules_that_marian_lacks_stay_behind(tmp_path: Path) -> None:
    folder = write_marian(tmp_path / "files")
    ours = BilingualTokenizer(
        load_tokenizer(folder), LanguageRules("en", lowers=True), LanguageRules("de", lowers=True)
    )
    certificate = export_huggingface(translator_of(ours), tmp_path / "lowered")
    assert "lower case" in certificate["tokenizer"]
    assert not (tmp_path / "lowered" / "vocab.json").exists()
    plain = BilingualTokenizer(load_tokenizer(folder), LanguageRules("en"), LanguageRules("de"))
    export_huggingface(translator_of(plain), tmp_path / "out")
    (tmp_path / "out" / "target_vocab.json").write_text("{}")
    certificate = import_huggingface(tmp_path / "out", tmp_path / "back")
    assert certificate["tokenizer"] == "its languages have a vocabulary each (target_vocab.json)"
    assert load(tmp_path / "back").tokenizer is None


def test_vocabularies_that_transformers_lacks_stay_behind_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "codes").write_text("a b\nab c</w>\n")
    (tmp_path / "dict.txt").write_text("abc 3\na@@ 1\n")
    model = io.BytesIO()
    rules = {"model_type": "bpe", "vocab_size": 70, "hard_vocab_limit": False, "minloglevel": 2}
    SentencePieceTrainer.train(sentence_iterator=iter(MADE_UP[:2] * 9), model_writer=model, **rules)
    apart = read_codes(tmp_path / "codes")
    (tmp_path / "codes").write_text("#version: 0.2\na b\nab c</w>\n")
    lacking = read_codes(tmp_path / "codes", tmp_path / "dict.txt")
    for number, (vocabulary, message) in enumerate(
        (
            (apart, "its codes are of version 0.1, where the end of a word is a symbol of its own"),
            (lacking, "its dictionary lacks 3 pieces that its merges make on the way"),
            (
                UnigramTokenizer(model.getvalue()),
                "its SentencePiece model is not a plain unigram one",
            ),
        )
    ):
        ours, out = (
            BilingualTokenizer(vocabulary, LanguageRules("en"), LanguageRules("de")),
            tmp_path / str(number),
        )
        certificate = export_huggingface(translator_of(ours), out)
        assert certificate["tokenizer"] == f"transformers' tokenizers cannot say it: {message}"
        assert (
            not (out / "tokenizer.json").exists() and not (out / "tokenizer_config.json").exists()
        )


def test_a_tokenizer_that_no_translator_can_use_is_left_with_a_reason(tmp_path: Path) -> None:
    ours = BilingualTokenizer(
        vocabulary_of("word-bpe", MADE_UP, tmp_path), LanguageRules("en"), LanguageRules("de")
    )
    export_huggingface(translator_of(ours), tmp_path / "out")
    file = tmp_path / "out" / "tokenizer.json"
    content = json.loads(file.read_bytes())
    content["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "</s>", "type_id": 0}})
    file.write_text(json.dumps(content))
    certificate = import_huggingface(tmp_path / "out", tmp_path / "around")
    assert "puts more around a text than an end behind it" in certificate["tokenizer"]
    assert load(tmp_path / "around").tokenizer is None
    file.rename(file.with_name("source.spm"))
    certificate = import_huggingface(tmp_path / "out", tmp_path / "other")
    known = "tokenizer.json, or source.spm with target.spm and vocab.json"
    assert (
        certificate["tokenizer"]
        == f"a translator's is read from {known}, and the folder has source.spm"
    )
    file.with_name("source.spm").unlink()
    assert "tokenizer" not in import_huggingface(tmp_path / "out", tmp_path / "none")


def test_damaged_rules_and_other_vocabularies_are_refused(tmp_path: Path) -> None:
    ours = BilingualTokenizer(
        vocabulary_of("word-bpe", MADE_UP, tmp_path), LanguageRules("en"), LanguageRules("de")
    )
    shifted = {"positions": "sinusoidal", "sinusoids": "fairseq", "first_position": 7}
    with pytest.raises(ConfigError, match="model.first_position"):
        export_huggingface(translator_of(ours, **shifted), tmp_path / "shifted")
    export_huggingface(translator_of(ours), tmp_path / "out")
    settings = tmp_path / "out" / "tokenizer_config.json"
    content = json.loads(settings.read_bytes())
    for sides, message in (
        ([1], "is not the rules of two languages"),
        ([{}, {}], "the rules of a language are damaged"),
    ):
        settings.write_text(json.dumps({**content, "sublayer_sides": sides}))
        with pytest.raises(DataError, match=f"tokenizer_config.json: .*{message}"):
            import_huggingface(tmp_path / "out", tmp_path / "back")
    settings.unlink()
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    other = BilingualTokenizer(read_codes(_few(tmp_path)), LanguageRules("en"), LanguageRules("de"))
    export_huggingface(translator_of(other), tmp_path / "few")
    (tmp_path / "few" / "tokenizer.json").write_bytes(
        (tmp_path / "out" / "tokenizer.json").read_bytes()
    )
    with pytest.raises(
        CheckpointError, match=f"has {config['vocab_size']} ids, the model's vocab_size is"
    ):
        import_huggingface(tmp_path / "few", tmp_path / "back")


def _few(folder: Path) -> Path:
    path = folder / "few.codes"
    path.write_text("#version: 0.2\na b</w>\n")
    return path
