"""Every kind of tokenizer: trained, stored, cut, extended; words, and published vocabularies."""

import json
from itertools import product

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from sublayer.api.tokenizing import tokenize
from sublayer.config.data import LETTERED_TOKENIZERS, DataConfig
from sublayer.data.prepare import note_losses, prepare, prepare_text, prepare_tokenizer
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.data.tokenizers import base
from sublayer.data.tokenizers.base import NotUtf8, WordCache
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules
from sublayer.data.tokenizers.named import (
    is_former,
    load_tokenizer,
    train_tokenizer,
    with_special_tokens,
)
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer
from sublayer.data.tokenizers.subword import SPECIALS
from sublayer.errors import ConfigError, DataError
from sublayer.interop.encoders import Bert
from tests.breadth import examples
from tests.data.sentencepiece_files import spm
from tests.data.sentences import ODD, sentences

pytest.importorskip("sacremoses")

TEXT = "a naïve text with an émigré, _start_ and (_classify_), isn't it? 1,000 or 20\n".encode() * 5
KINDS = {
    "bytes": {}, "characters": {}, "bpe": {"vocab_size": 300}, "unigram": {"vocab_size": 80},
    "sentinels": {"vocab_size": 80, "sentinels": 9}, "wordpiece": {"vocab_size": 80},
    "moses-bpe": {"vocab_size": 100}, "word-bpe": {"vocab_size": 100},
    "gpt1-bpe": {"vocab_size": 100},
    "transformers": {"vocab_size": 100, "normalization": "transformers"},
}  # fmt: skip
NAMED = {"sentinels": "unigram", "transformers": "gpt1-bpe"}
SPECIAL = b"<pad> </s> <s> [MASK] <mask> <cls> [CLS] <|endoftext|> <extra_id_0> <Lua heritage>"
EN = ["A man's hat.", "Two dogs, running!", "The café (on the left) is open.", "A hat costs £5."]
DE = ["Der Hut.", "Zwei Hunde rennen!", "Das Café (links) ist geöffnet.", "Ein Hut kostet 5 £."]
BOOLEANS = st.booleans()
RULES = st.fixed_dictionaries({
    "normalization_rule_name": st.sampled_from(["identity", "nmt_nfkc", "nmt_nfkc_cf"]),
    "model_type": st.sampled_from(["unigram", "bpe"]),
    **dict.fromkeys(("add_dummy_prefix", "remove_extra_whitespaces", "byte_fallback"), BOOLEANS),
    **dict.fromkeys(("split_by_whitespace", "treat_whitespace_as_suffix"), BOOLEANS),
    "user_defined_symbols": st.sampled_from([[], ["<x>", "\n"]]),
})  # fmt: skip


def train(kind, texts=(TEXT,)):
    return train_tokenizer(NAMED.get(kind, kind), texts, **KINDS[kind])


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return train(kind)


def test_a_file_gives_the_tokenizer_back(tmp_path, kind, tokenizer):
    tokenizer.save(tmp_path / "deep" / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "deep")
    assert loaded.kind == tokenizer.kind == NAMED.get(kind, kind)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    for name in ("token_bytes", "token_characters"):
        assert getattr(loaded, name).tolist() == getattr(tokenizer, name).tolist()
    for name in ("special_ids", "sentinel_ids", "unk_id", "pad_id", "end_id", "is_lossless"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert tokenizer.vocab_size <= KINDS[kind].get("vocab_size", 256)
    assert train(kind).serialize() == tokenizer.serialize()


@examples(200)
@given(text=ODD, near=st.integers(0, 200))
def test_a_cut_changes_no_id_and_several_texts_are_encoded_as_each(tokenizer, text, near):
    data = text.encode()
    place = tokenizer.cut(data, min(near, len(data)))
    assert place <= near
    texts = [data[:place], data[place:], b"", data]
    ids = [tokenizer.encode(part).tolist() for part in texts]
    if tokenizer.kind == "wordpiece":
        # Words are encoded apart; the library encodes the whole.
        library = tokenizers.Tokenizer.from_str(tokenizer.serialize().decode())
        library.encode_special_tokens = True
        assert library.encode(text, add_special_tokens=False).ids == ids[3]
    assert ids[0] + ids[1] == ids[3]
    assert [several.tolist() for several in tokenizer.encode_many(texts)] == ids
    if tokenizer.is_lossless and tokenizer.unk_id not in ids[3]:
        assert tokenizer.decode(ids[3]) == data
        assert tokenizer.token_bytes[ids[3]].sum() == len(data)
        assert tokenizer.token_characters[ids[3]].sum() == len(text)


def test_special_ids_stand_for_no_text_and_ids_beyond_the_vocabulary_lack_theirs(kind, tokenizer):
    special = set(tokenizer.special_ids) - {tokenizer.unk_id}
    assert tokenizer.token_bytes[list(special)].sum() == 0
    assert not special & set(tokenizer.encode(SPECIAL).tolist())
    assert tokenizer.decode(sorted(special - {*tokenizer.sentinel_ids})) == b""
    known = int(tokenizer.encode(b"a")[-1])
    for unknown in (-1, tokenizer.vocab_size, 10**12):
        text = tokenizer.decode([unknown, known, unknown, unknown]).decode()
        assert text == f"\ufffd{tokenizer.decode([known]).decode()}\ufffd\ufffd"


def test_added_names_have_the_ids_behind_the_last(tmp_path, tokenizer):
    extended = tokenizer.with_names(TRAVERSAL_NAMES)
    first = tokenizer.vocab_size
    added = range(first, first + 3)
    assert extended.vocab_size == len(extended.token_bytes) == first + 3
    assert extended.added_ids == dict(zip(TRAVERSAL_NAMES, added, strict=True))
    for name in ("kind", "unk_id", "pad_id", "cls_id", "sep_id", "mask_id", "end_id"):
        assert getattr(extended, name) == getattr(tokenizer, name)
    assert extended.special_ids == (*tokenizer.special_ids, *added)
    ids = extended.encode(TEXT)
    assert ids.tolist() == tokenizer.encode(TEXT).tolist()
    marked = np.array([first, *ids[:4], first + 1, *ids[4:], first + 2])
    assert extended.decode(marked) == tokenizer.decode(ids)
    if tokenizer.has_words:
        starts = [*tokenizer.starts_word(ids[:6]).tolist(), True, True, True]
        assert extended.starts_word(np.array([*ids[:6], *added])).tolist() == starts
    extended.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).fingerprint == extended.fingerprint
    both = tokenizer.with_names(TRAVERSAL_NAMES[:2]).with_names(TRAVERSAL_NAMES)
    assert both.added_ids == extended.added_ids
    assert both.with_names(TRAVERSAL_NAMES) is both


@pytest.mark.parametrize("name, size", [
    ("characters", ""), ("unigram", ""), ("wordpiece", "10 .*take 11"), ("word-bpe", ""),
    ("gpt1-bpe", "7 .*take 8"), ("bpe", "256 .*257"),
])  # fmt: skip
def test_bad_bytes_texts_without_words_and_sizes_below_the_characters_are_refused(name, size):
    tokenizer = train(name)
    for use in (tokenizer.encode, lambda text: train(name, [text])) if name != "bpe" else ():
        with pytest.raises(NotUtf8, match="line 3: byte 0xff is not UTF-8") as refused:
            use(b"a\nb\nab\xff\xfe")
        assert refused.value.position == 6
    blanks = ("\ufeff\ufeff", "\x01\x02\x07\n", "\u200b \n") * (name in LETTERED_TOKENIZERS)
    for text in (" \n\n", *blanks) if name not in ("characters", "bpe") else ():
        with pytest.raises(DataError, match="no text to train"):
            train(name, [text.encode()])
    if size:
        with pytest.raises(ConfigError, match=f"data.vocab_size = {size}"):
            train_tokenizer(name, [b"abc"], vocab_size=int(size.split()[0]))


@pytest.mark.parametrize("kind, changes, message", [
    ("bytes", {"version": 2}, "version 2"), ("characters", {"characters": ["ab"]}, "damaged"),
    ("characters", {"characters": ["\ud800"]}, "lone surrogate"),
    ("moses-bpe", {"pieces": None}, "damaged"),
    ("moses-bpe", {"pieces": ["a", "a"], "merges": []}, "do not make"),
    (None, b"", "vocab.txt.*empty"), (None, b"a\n\xff", "vocab.txt.*byte 0x"),
    (None, b"[UNK]\na\nb\na\n", "vocab.txt.*line 4: 'a' repeats line 2"),
])  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path, kind, changes, message):
    if kind is None:
        (tmp_path / "vocab.txt").write_bytes(changes)
    else:
        text = json.dumps({**train(kind).content(), **changes})
        (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path)


def test_the_file_of_a_folder_is_found_by_its_name(tmp_path):
    with pytest.raises(DataError, match="no tokenizer.json"):
        load_tokenizer(tmp_path)
    unigram = train("unigram")
    (tmp_path / "30k-clean.model").write_bytes(unigram.model)
    for path in (tmp_path, tmp_path / "30k-clean.model"):
        assert load_tokenizer(path).fingerprint == unigram.fingerprint
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    with pytest.raises(DataError, match=r"differ from those of its 30k-clean.model"):
        load_tokenizer(tmp_path)
    settings.unlink()
    (tmp_path / "other.model").write_bytes(unigram.model)
    with pytest.raises(DataError, match="has 30k-clean.model and other.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n")
    assert load_tokenizer(tmp_path).kind == "wordpiece"


def test_cuts_move_back_to_the_start_of_a_character_and_pieces_begin_words_as_released():
    # 1, 2, 3 and 4 bytes begin at 0, 1, 3 and 6.
    starts = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]
    assert [base.character_start("aé€𝄞".encode(), near) for near in range(12)] == starts
    assert base.character_start(b"\x80" * 10, 7) == 7, "bytes that begin none are cut anywhere"
    begin = ("▁the", "▁", "<unk>", ",", "(", "'", "'s", "–", "€", "9", "a9", "é", "漢")
    assert all(map(base.begins_word, begin))
    assert not any(map(base.begins_word, ("the", "A", "..", "ing.")))
    inside = ("the", "A", "..", "ing.", "ön", "ская", "습니다", "ि", "é.")
    assert not any(map(base.begins_any_word, inside))
    assert all(map(base.begins_any_word, ("▁é", ",", "–", "a9", "漢字", "ばら", "ไทย", "。")))


@pytest.mark.parametrize(("most", "most_characters"), [(1, 99), (99, 9), (99, 99)])
def test_a_word_is_encoded_once_and_what_is_forgotten_again(monkeypatch, most, most_characters):
    monkeypatch.setattr(base, "_MOST_WORDS", most)
    monkeypatch.setattr(base, "_MOST_CHARACTERS", most_characters)
    random, known = np.random.default_rng(0), ["a", "bb", "", "dddd", "long enough", "f", "gg"]
    cache, seen = WordCache(), []

    def encode(words):
        seen.extend(words)
        return [[len(word)] * len(word) for word in words]

    for _ in range(40):
        words = [known[number] for number in random.integers(0, len(known), 6)]
        expected = [len(word) for word in words for _ in word]
        assert cache.encode(words, encode).tolist() == expected
    # With room for all, each was asked for once.
    assert (len(seen) == len(known)) == (most == most_characters == 99)


def test_berts_vocabulary_gives_the_ids_of_transformers(real_data):
    from transformers import BertTokenizer

    bert = load_tokenizer(real_data / "vocab" / "bert" / "vocab.txt")
    theirs = BertTokenizer.from_pretrained(real_data / "vocab" / "bert")
    found = sentences(real_data)
    rows = theirs(found, add_special_tokens=False, split_special_tokens=True).input_ids
    for sentence, ids in zip(found, rows, strict=True):
        assert bert.encode(sentence.encode()).tolist() == ids, sentence
    assert (bert.pad_id, bert.cls_id, bert.sep_id, bert.mask_id) == (0, 101, 102, 103)
    # [unused0] to [unused98] are 1 to 99, [unused99] to [unused993] are 104 to 998.
    assert bert.special_ids == tuple(range(999))
    assert bert.encode(b"a " + b"x" * 101).tolist() == [1037, bert.unk_id]


def test_capitals_are_lowered_unless_a_vocabularys_files_keep_them(tmp_path, capsys):
    def write(*more, **settings):
        pieces = (*SPECIALS, "[unused0]", "the", "un", "##aff", "##able", "a", "##s", *more)
        (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        return load_tokenizer(tmp_path / "vocab.txt")

    lowered = write()
    assert lowered.encode("THE ÁS unaffable".encode()).tolist() == [6, 10, 11, 7, 8, 9]
    assert lowered.special_ids == (0, 1, 2, 3, 4, 5)
    assert write("The", do_lower_case=False).encode(b"The the THE").tolist() == [12, 6, 1]
    assert "do_lower_case" not in capsys.readouterr().err
    assert write("The", "[NUM]").encode(b"The the THE").tolist() == [6, 6, 6]
    assert "'The'; {\"do_lower_case\": false}" in capsys.readouterr().err
    with pytest.raises(DataError, match="do_lower_case = 'no'"):
        write(do_lower_case="no")


def test_escapes_are_moses_own_and_undone_where_text_is_put_together():
    plain, escaping = (LanguageRules("en", "tokenize", escapes=each) for each in (False, True))
    escaped = "R &amp; D &#124; &lt; b &gt; &quot; it &apos;s &quot; &#91; 1 &#93;"
    assert " ".join(escaping.words('R&D | <b> "it\'s" [1]')) == escaped
    for line in ("R & D", '"it\'s"', "x [1] < y", "&amp; is an entity", "a | b"):
        assert escaping.text(escaping.words(line)) == plain.text(plain.words(line))


def test_a_vocabulary_is_trained_or_gets_the_rules_of_the_recipe(tmp_path):
    def check_written(tokenizer):
        for line, ids in zip(DE, tokenizer.encode_target(DE), strict=True):
            assert tokenizer.write(ids) == line
            assert not {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id} & set(ids.tolist())
        for line, ids in zip(EN, tokenizer.encode_source(EN), strict=True):
            assert " ".join(tokenizer.words(ids)) == line

    pairs = {}
    for side, language, lines in (("source", "en", EN), ("target", "de", DE)):
        (tmp_path / language).write_text("\n".join(lines * 9))
        pairs |= {f"{side}_path": str(tmp_path / language), f"{side}_language": language}
    ids, path = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}, tmp_path / "joint.model"
    # A model without padding is padded with its beginning.
    for rules, special in (({"model_type": "bpe"}, (1, 1, 2)), (ids, (0, 2, 3))):
        path.write_bytes(spm([*EN, *DE], 90, **rules))
        tokenizer = prepare_tokenizer(DataConfig(**pairs, tokenizer=str(path)))
        assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) == special
        check_written(tokenizer)
    config = DataConfig(**pairs, tokenizer="unigram", vocab_size=120, split="100/0/0")
    check_written(prepare_tokenizer(config, cache=tmp_path / "cache"))
    given_ = BilingualTokenizer(UnigramTokenizer(spm([*EN, *DE], 90)), *[LanguageRules("und")] * 2)
    found = prepare(config, tokenizer=given_, cache=tmp_path / "cache").tokenizer
    assert found.vocabulary is given_.vocabulary
    assert (found.source, found.target) == (LanguageRules("en"), LanguageRules("de"))
    content = found.content()
    content["target"]["future"] = True
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(content))
    with pytest.raises(DataError, match="newer.json: .* unknown field: update"):
        load_tokenizer(newer)
    for missing in ({"eos_id": -1}, {"bos_id": -1}):
        model = UnigramTokenizer(spm([*EN, *DE], 90, **missing))
        with pytest.raises(ConfigError, match="</s> and <pad> or <s>"):
            BilingualTokenizer(model, found.source, found.target)


@pytest.mark.parametrize("text", [
    "今天天气很好，我们去公园吧！“好的，”他说：（笑）２０２４年３５％；龍與鳳……",
    "ばらとはら、パパとハハとババ。「ガラス」と言った！ﾊﾝｶｸ ＡＢＣ１２３ ㍻㈱①",
    "값이 없다, 닭을 삶다. 안녕하세요, 만나서 반갑습니다! 서울은 수도이다?",
    "Tiếng Việt có sáu thanh điệu: ma, má, mà, mả, mã, mạ. Năm 97, 1997.",
    "Schön ist schon der Bär bar: „Größe“ – ja! Die Masse, die Maße; 97, 12, 345,6.",
    "हिन्दी पढ़ना ज़रूर है। क्या आप ठीक हैं?",
    "ภาษาไทยมีความไพเราะและเป็นเอกลักษณ์ที่คนไทยทุกคนควรรักษาไว้" * 3,
    "می\u200cخواهم کتاب‌ها را ۱۲۳ ؟ שָׁלוֹם עוֹלָם!",
])  # fmt: skip
def test_no_character_of_a_language_is_lost_unless_asked(tmp_path, text):
    for kind in KINDS.keys() - {"gpt1-bpe", "transformers"}:
        name, size = NAMED.get(kind, kind), None if kind in ("bytes", "characters") else 700
        sentinels = {"sentinels": 9} if kind == "sentinels" else {}
        for lowers in {False, name in LETTERED_TOKENIZERS}:
            rules = {"keep_accents": True, "lowercase": lowers, **sentinels}
            tokenizer = train_tokenizer(name, [text.encode()], vocab_size=size, **rules)
            ids = tokenizer.encode(text.encode())
            assert tokenizer.unk_id is None or tokenizer.unk_id not in ids
            written = "".join(tokenizer.decode(ids).decode().split())
            assert written == "".join((text.lower() if lowers else text).split())
            if name not in ("unigram", "wordpiece") or sentinels:
                continue
            folder = tmp_path / f"{kind}-{lowers}"
            for file, content in Bert().tokenizer_files(tokenizer, max_len=1 << 20).items():
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).write_bytes(content)
            library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            assert library.encode(text, add_special_tokens=False).ids == ids.tolist()
            assert load_tokenizer(folder).encode(text.encode()).tolist() == ids.tolist()


@examples(100)
@given(
    st.text(st.characters(categories=[*"LMNPS"], exclude_characters="\u2581\u2585"), min_size=1),
    st.sampled_from((*LETTERED_TOKENIZERS, "word-bpe")),
)
def test_no_drawn_character_is_lost(text, kind):
    rules = {"keep_accents": True, "lowercase": False, "vocab_size": 900}
    tokenizer = train_tokenizer(kind, [text.encode()], **rules)
    written = tokenizer.decode(tokenizer.encode(text.encode())).decode()
    assert "".join(written.split()) == "".join(text.split())


def test_marks_are_stripped_on_the_papers_corpora_or_where_it_is_asked():
    text = {"tokenizer": "unigram", "path": "a.txt"}
    papers = {"tokenizer": "wordpiece", "corpus": ("wikipedia", "bookcorpus")}
    own, capitals, stripped = (True, True), (True, False), (False, True)
    for fields, rules in (
        (text, own), ({**text, "keep_accents": False}, stripped),
        ({**text, "sentinels": 5}, capitals),
        ({**text, "lowercase": False}, capitals), (papers, (None, None)),
        ({**papers, "lowercase": False}, (False, False)), ({**papers, "path": "a.txt"}, own),
        ({**text, "corpus": "python", "path": None}, own), ({**text, "tasks": "table"}, own),
        ({**text, "source_language": "de", "target_language": "en"}, capitals),
    ):  # fmt: skip
        assert tuple(DataConfig(**fields).letter_rules().values()) == rules
    data = "Schön schön Ros ros ".encode() * 9
    for keeps, kind in product((None, True), ("unigram", "wordpiece")):
        tokenizer = train_tokenizer(kind, [data], vocab_size=60, keep_accents=keeps)
        pieces = ("schön" if keeps else "schon") + " ros"
        assert tokenizer.decode(tokenizer.encode("Schön Ros".encode())) == pieces.encode()


def test_sentinels_that_fill_a_vocabulary_are_refused_before_the_text_is_read(tmp_path):
    asked = {"kind": "unigram", "vocab_size": 50, "sentinels": 50}
    with pytest.raises(ConfigError, match="data.sentinels = 50"):
        tokenize(path=str(tmp_path / "none.txt"), out=tmp_path / "new.json", **asked)


def test_digits_before_a_comma_are_known_and_rare_characters_make_room(capsys):
    text = b"97, 97, 1997, 12, 9 7 " * 20
    tokenizer = train_tokenizer("unigram", [text], vocab_size=40, keep_accents=True)
    assert tokenizer.unk_id not in tokenizer.encode(b"97,1, 79,97, 2,")
    rare = "ab ba " * 40_000 + "".join(map(chr, range(0x4E00, 0x4E04)))
    few = train_tokenizer("unigram", [rare.encode()], vocab_size=18, keep_accents=True)
    assert few.vocab_size <= 18 and few.unk_id in few.encode("一".encode())
    assert "has no room for every character" in capsys.readouterr().err


def test_what_a_tokenizer_does_not_keep_of_a_text_is_said(capsys):
    texts = ["Schön schon Bär Bar 漢字 ".encode() * 9]
    for keeps, said in (True, " 0.0% to another"), (False, " 60.0% to another"):
        tokenizer = train_tokenizer("wordpiece", texts, vocab_size=99, keep_accents=keeps)
        note_losses("it", texts, tokenizer, trains=True)
        line = capsys.readouterr().err
        assert "changes 60.0% of the words (Schön to sch" in line and said in line
    note_losses("it", ["Schön, д".encode() * 99], tokenizer, trains=False)
    assert "of the characters" in capsys.readouterr().err
    note_losses("it", texts, tokenizer, trains=False)
    note_losses("it", ["д".encode()], train("bpe"), trains=True)
    assert not capsys.readouterr().err


@given(RULES, st.text("aB é\n\t<x>\u3000日\x01", max_size=30), st.integers(0, 60))
@examples(100)
def test_a_sentencepiece_model_normalises_as_it_says_itself(tmp_path_factory, rules, text, near):
    path = tmp_path_factory.mktemp("rules") / "spm.model"
    path.write_bytes(spm(["aB é  Bé a", "日 <x> aa"], 320, **rules))
    ids = SentencePieceProcessor(model_file=str(path)).encode(text)
    for special_tokens in (None, "text", "file"):
        ours = load_tokenizer(path, special_tokens=special_tokens)
        assert ours.encode(text.encode()).tolist() == ids
        at = ours.cut(text.encode(), min(near, len(text.encode())))
        parts = (text.encode()[:at], text.encode()[at:])
        assert np.concatenate([ours.encode(part) for part in parts]).tolist() == ids


def test_marks_in_a_text_are_tokens_or_letters_as_a_field_says(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("a<|user|> b <|endoftext|>\n" * 40)
    library = tokenizers.Tokenizer.from_str(train("bpe").library_file.decode())
    library.add_special_tokens(["<|user|>"])
    library.save(str(tmp_path / "tokenizer.json"))
    fields = {"path": str(tmp_path / "text.txt"), "tokenizer": str(tmp_path / "tokenizer.json")}
    user = library.token_to_id("<|user|>")
    for asked, n_users in ((None, 36), ("tokens", 36), ("text", 0)):
        data = prepare(DataConfig(**fields, special_tokens=asked), cache=tmp_path / "cache")
        assert (data.train.ids == user).sum() == n_users
        assert data.train.store.marks == {"<|user|>": 36, "<|endoftext|>": 36}
        data.tokenizer.save(tmp_path / f"{asked}.json")
        again = load_tokenizer(tmp_path / f"{asked}.json")
        expected = (data.tokenizer.fingerprint, asked != "text")
        assert (again.fingerprint, again.reads_marks) == expected
        ids = again.encode(b"x<|user|>y\xff")
        assert again.decode(ids) == b"x<|user|>y\xff" and again.token_bytes[ids].sum() == 11
        # A run that starts from another goes on with its tokenizer, or as asked.
        kept = prepare(DataConfig(**fields), tokenizer=again, cache=tmp_path / "cache")
        assert kept.tokenizer.reads_marks is again.reads_marks
        prepare_text(again, path=fields["path"], cache=tmp_path / "cache")
        how = "letters" if asked == "text" else "these tokens"
        assert f"<|endoftext|> 40 times: they are read as {how}\n" in capsys.readouterr().err
    path = tmp_path / "tokenizer.json"
    assert is_former(load_tokenizer(path), path)
    train("bpe").save(path)
    assert not is_former(load_tokenizer(path), path)
    with pytest.raises(ConfigError, match="special_tokens = tokens has no effect"):
        with_special_tokens(train("bytes"), "tokens")
