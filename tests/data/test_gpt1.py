"""GPT-1's text rules and tokenizer against the released code and transformers' class."""

import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.api.tokenizing import find_tokenizer
from sublayer.data.tokenizers import gpt1
from sublayer.data.tokenizers.gpt1 import NEWLINE, Gpt1Tokenizer, Gpt1Vocabulary, vocabulary_of
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples
from tests.data.test_subwords import joined, merged

ftfy = pytest.importorskip("ftfy")
spacy = pytest.importorskip("spacy")
END, ENGLISH = "</w>", spacy.blank("en").tokenizer
PARTS = list("ab Zé'.,:;!?-_~\"()[]{}|/\\*+<>&^=@#0189\t\r\n\x85\u00a0\u2028—…´’ﬁＡ漢İ")
PARTS += ["&amp;", "&lt;", "<b>", "â€™", "don't ", ":)", "a.m. ", "\x1b[0m", "\n", "\r\n"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)
PROSE = "the old man\nwent to sea & back, well\n" * 3 + "a <b>tag\nand more of it\nto the end"
RELEASED, USUAL = ("encoder_bpe_11.json", "vocab_11.bpe"), ("vocab.json", "merges.txt")
TEXT = "It's the end of the road, the boat isn't here… the “others” don't\nsee it; they're at " * 3
TEXT += "sea (or so they say).\n\nCafé, thé, 1,000 others!\n"
CHARACTERS = "abdeghlnortw'.,\"&\\"
LINES = ["t h", "th e</w>", "e r", "n '", "l o", "lo w", "e r</w>", "low er</w>"]
LINES += ["a a", "aa a</w>", "n' t</w>"]
MERGES = tuple(tuple(line.split()) for line in LINES)
ENDED = [f"{character}</w>" for character in CHARACTERS]
PIECES = ["<unk>", *CHARACTERS, *ENDED, *(left + right for left, right in MERGES), "\n</w>"]
IDS = {piece: id_ for id_, piece in enumerate(PIECES)}
TINY = Gpt1Tokenizer(Gpt1Vocabulary(IDS, MERGES))
FAST = TINY.vocabulary.with_normalization("transformers")


def released_standard(text):
    """``text_standardize`` of openai/finetune-transformer-lm, rule by rule."""
    for old, new in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
        text = text.replace(old, new)
    # Not raw: of the two backslashes before the last plus of the first line one is left.
    marks = '(-+|~+|!+|"+|;+|\\?+|\\++|,+|\\)+|\\(+|\\+|\\/+|\\*+|\\[+|\\]+|}+|{+|\\|+|_+)'
    text = re.sub(marks, r" \1 ", text)
    text = re.sub(r"\s*\n\s*", " \n ", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()


def released_words(text):
    return [each.text.lower() for each in ENGLISH(released_standard(ftfy.fix_text(text)))]


def released_encode(text, ids, merges):
    ranks, found = {pair: rank for rank, pair in enumerate(merges)}, []
    for word in released_words(text):
        symbols = merged([*word[:-1], word[-1] + END], ranks)
        # The special case: an end of line with the space behind it.
        found += ["\n" + END] if symbols == ["\n", " " + END] else symbols
    return [ids.get(symbol, 0) for symbol in found]


def slowly_trained(counts, n_merges):
    """Train merges: the most frequent pair first; of several that of the lowest ids."""
    characters = sorted({character for word in counts for character in word})
    pieces = [*characters, *(character + END for character in characters)]
    segmented, merges = {word: [*word[:-1], word[-1] + END] for word in counts}, []
    while len(merges) < n_merges:
        pairs = Counter()
        for word, symbols in segmented.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], *map(pieces.index, pair)))
        merges.append(best)
        pieces.append("".join(best))
        segmented = {word: joined(symbols, best) for word, symbols in segmented.items()}
    return pieces, merges


def words(text):
    parts = list(gpt1.words_of(text))
    return [distinct[number] for distinct, numbers in parts for number in numbers.tolist()]


@examples(200)
@given(TEXTS)
def test_text_is_mended_and_divided_as_by_the_released_code(text):
    assert gpt1.mend(text) == ftfy.fix_text(text)
    expected = [NEWLINE if word == f"{NEWLINE} " else word for word in released_words(text)]
    assert words(text) == expected


def test_a_long_text_is_divided_in_parts_as_it_is_whole(monkeypatch):
    prose = "It was the best of times - it was (so far) the worst.\nDon't \n\n ask, e.g. why " * 9
    whole = words(prose)
    monkeypatch.setattr(gpt1, "_BLOCK_CHARACTERS", 20)
    assert words(prose) == whole and len(list(gpt1.words_of(prose))) > 9


@given(st.one_of(TEXTS, TEXTS.map(lambda text: PROSE + text + PROSE)), st.integers(0, 300))
def test_a_cut_changes_no_word(text, near):
    data = text.encode()
    place = gpt1.cut(data, min(near, len(data)))
    assert place <= near
    assert words(data[:place].decode()) + words(data[place:].decode()) == words(text)


@pytest.mark.parametrize("text, expected, decoded, n_bytes", [
    ("aaaa lower", "aa a a</w> lower</w>", "aaaa lower ", [2, 1, 1, 5]),
    ("Don't\n\n  the", "d o</w> n't</w> \n</w> the</w>", "do n't \nthe ", [1, 1, 3, 1, 3]),
    ("th\u6f22e\u6f22", "th <unk> e <unk>", "the", [2, 0, 1, 0]),
])  # fmt: skip
def test_ids_are_those_worked_out_by_hand(text, expected, decoded, n_bytes):
    ids, expected = TINY.encode(text.encode()), expected.split(" ")
    names = {id_: piece for piece, id_ in TINY.vocabulary.ids.items()}
    assert [names[id_] for id_ in ids.tolist()] == expected
    assert released_encode(text, IDS, MERGES) == [IDS[piece] for piece in expected]
    assert (TINY.decode(ids).decode(), TINY.token_bytes[ids].tolist()) == (decoded, n_bytes)


@cache
def theirs():
    from transformers import OpenAIGPTTokenizer

    return OpenAIGPTTokenizer(vocab=dict(IDS), merges=list(MERGES))


@examples(200)
@given(TEXTS)
def test_ids_are_those_of_the_released_code_or_of_transformers(text):
    assert TINY.encode(text.encode()).tolist() == released_encode(text, IDS, MERGES)
    assert FAST.encode(text.encode()).tolist() == theirs()(text)["input_ids"]


def test_the_published_vocabulary_has_its_ids(real_data):
    folder = real_data / "vocab" / "gpt1"
    if not folder.is_dir():
        pytest.skip("no published vocabulary of GPT-1")
    published = load_tokenizer(folder)
    assert (published.vocab_size, published.unk_id, published.special_ids) == (40478, 0, (0,))
    ids = published.encode(b"the\nn't Very POSITIVE negative").tolist()
    assert ids == [481, 40477, 538, 963, 6353, 9503]
    text = sorted((real_data / "books").glob("*.txt"))[0].read_text()[5_000:25_000]
    expected = released_encode(text, published.vocabulary.ids, published.vocabulary.merges)
    assert published.encode(text.encode()).tolist() == expected


@pytest.mark.parametrize("tokenizer", [TINY, FAST], ids=["published", "transformers"])
def test_a_file_keeps_its_rules_unless_others_are_named(tmp_path, tokenizer):
    tokenizer.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
    names = ("_start_", "_classify_")
    tokenizer.with_names(names).save(tmp_path / "added.json")
    for name, expected in (("published", TINY), ("transformers", FAST)):
        for read in (load_tokenizer, find_tokenizer):
            loaded = read(tmp_path / "tokenizer.json", normalization=name)
            assert loaded.fingerprint == expected.fingerprint
        added = load_tokenizer(tmp_path / "added.json", normalization=name)
        assert added.fingerprint == expected.with_names(names).fingerprint
        assert vocabulary_of(added).ids == IDS
    train_tokenizer("bytes", ()).save(tmp_path / "tokenizer.json")
    with pytest.raises(ConfigError, match="data.normalization"):
        load_tokenizer(tmp_path, normalization="transformers")


def write(folder, names=USUAL, vocabulary=IDS, lines=LINES):
    (folder / names[0]).write_text(json.dumps(vocabulary))
    (folder / names[1]).write_text("\n".join(["#version: 0.2", *lines, ""]))


@pytest.mark.parametrize("names", [RELEASED, USUAL])
def test_files_are_found_by_either_name_or_their_folder_and_go_together(tmp_path, names):
    write(tmp_path, names)
    for path in (tmp_path, *map(tmp_path.joinpath, names)):
        assert load_tokenizer(path).fingerprint == TINY.fingerprint
    fast = load_tokenizer(tmp_path / names[0], normalization="transformers")
    assert isinstance(fast, SubwordTokenizer) and fast.fingerprint == FAST.fingerprint
    (tmp_path / names[1]).unlink()
    for path in (tmp_path, tmp_path / names[0]):
        with pytest.raises(DataError, match=f"{names[0]} lacks {names[1]}"):
            load_tokenizer(path)


@pytest.mark.parametrize("changes, message", [
    ({"lines": ["t h", "t h"]}, "line 3: .* merged before"), ({"lines": []}, "which no"),
    ({"lines": ["t h", "w o"]}, "line 3: 'w' and 'o' .* lacks"),
    ({"vocabulary": {"a": 0, "b": 1}}, "no <unk>"),
    ({"vocabulary": {"<unk>": 0, "a": 0}}, "'a' has the id 0.* distinct ids"),
])  # fmt: skip
def test_files_that_do_not_belong_together_are_refused(tmp_path, changes, message):
    write(tmp_path, RELEASED, **changes)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path)


def test_special_pieces_have_no_text(tmp_path):
    names = ["<s>", "[PAD]", "_start_"]
    more = {**IDS, **{name: len(IDS) + 3 + number for number, name in enumerate(names)}}
    write(tmp_path, vocabulary=more)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == len(IDS) + 6
    assert tokenizer.special_ids == (0, *(more[name] for name in names))
    ids = [more["<s>"], *tokenizer.encode(b"the"), more["_start_"], len(IDS)]
    assert tokenizer.decode(ids).strip() == b"the" and tokenizer.pad_id == more["[PAD]"]
    assert not {*more.values()} - {*IDS.values()} & {*tokenizer.encode(b"<s> [PAD]").tolist()}


@pytest.mark.parametrize("normalization, n_merges", [("published", 20), ("transformers", 10_000)])
def test_a_trained_vocabulary_is_that_of_a_slow_reference(normalization, n_merges):
    if normalization == "published":
        words, last = [word for word in released_words(TEXT) if word.strip()], ["\n</w>"]
    else:
        library, last = theirs()._tokenizer, []
        normal = library.normalizer.normalize_str(TEXT)
        words = [word for word, _ in library.pre_tokenizer.pre_tokenize_str(normal)]
    pieces, merges = slowly_trained(Counter(words), n_merges)
    size = 1 + len(pieces) + len(last)
    for asked in ({"merges": n_merges}, {"vocab_size": size}):
        trained = train_tokenizer("gpt1-bpe", [TEXT.encode()], normalization=normalization, **asked)
        vocabulary = vocabulary_of(trained)
        assert sorted(vocabulary.ids, key=vocabulary.ids.get) == ["<unk>", *pieces, *last]
        assert (list(vocabulary.merges), trained.vocab_size) == (merges, size)
