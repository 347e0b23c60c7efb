"""GPT-1's text rules and tokenizer against the released code and transformers' class."""

import json
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.gpt1 import text_rules
from sublayer.data.gpt1.differences import Counts, count_differences
from sublayer.data.gpt1.text_rules import NEWLINE, cut, mend, standardise, words_of
from sublayer.data.gpt1.tokenizer import Gpt1Tokenizer, vocabulary_of, with_normalization
from sublayer.data.gpt1.vocabulary import Gpt1Vocabulary
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples
from tests.data.gpt1 import released

PARTS = st.sampled_from(
    [
        *"ab Zé'.,:;!?-_~\"()[]{}|/\\*+<>&^=@#0189\t\r\n\x85\u00a0\u2028—…´’ﬁＡ漢İ",
        *("&amp;", "&lt;", "<b>", "â€™", "don't ", ":)", "a.m. ", "\x1b[0m", "\n", "\r\n"),
    ]
)

TEXTS = st.lists(PARTS, max_size=60).map("".join)


def words(text: str) -> list[str]:
    found = []
    for part in words_of(text):
        found += [part.distinct[number] for number in part.numbers.tolist()]
    return found


@pytest.mark.parametrize(
    ("text", "standard"),
    [
        ('a-~!";b?+,)(c/*[]}{|_d', 'a - ~ ! " ; b ? + , ) ( c / * [ ] } { | _ d'),
        ("a---b|||c-", "a --- b ||| c -"),
        ("a\\b.c:'<>@#$%^&=`", "a\\b.c:'<>@#$%^&=`"),
        ("a—b–c―d…e´f", "a - b - c - d...e'f"),
        ("a—-b", "a -- b"),
        (" a \t\u00a0b\nc,\n \t\r\n\n  d\n", "a b \n c , \n d"),
        (" \n ", ""),
    ],
)
def test_marks_are_set_apart_and_whitespace_is_single(text, standard):
    # Spaces that two marks share are one.
    assert standardise(text) == standard == released.standardise(text)


def test_a_long_run_of_whitespace_takes_no_longer_than_its_length():
    # The published patterns try every place of such a run again; these look at each once.
    assert standardise("a" + " " * 2_000_000 + "b\n" + "\n " * 500_000 + "c") == "a b \n c"


@examples(200)
@given(TEXTS)
def test_text_is_mended_as_ftfy_does(text):
    ftfy = pytest.importorskip("ftfy")
    assert mend(text) == ftfy.fix_text(text)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_every_end_of_a_line_is_ftfys(end):
    ftfy = pytest.importorskip("ftfy")
    for line in ("plain\ttext", "", "a & b", "“a”"):
        text = f"first{end}{line}{end}"
        assert mend(text) == ftfy.fix_text(text)


def test_an_entity_counts_up_to_the_first_line_with_a_tag():
    assert mend("a &amp; b\n<i> &amp;\n&amp;") == "a & b\n<i> &amp;\n&amp;"


@examples(200)
@given(TEXTS)
def test_words_are_those_of_the_released_code(text):
    pytest.importorskip("spacy")
    newline = f"{NEWLINE} "
    assert words(text) == [NEWLINE if word == newline else word for word in released.words(text)]


@pytest.mark.parametrize(
    "size",
    [
        20,
    ],
)
def test_a_long_text_is_divided_in_parts_as_it_is_whole(monkeypatch, size):
    pytest.importorskip("spacy")
    prose = "It was the best of times - it was (so far) the worst.\nDon't \n\n ask, e.g. why " * 9
    whole = words(prose)
    monkeypatch.setattr(text_rules, "_BLOCK_CHARACTERS", size)
    assert len(list(words_of(prose))) > 9
    assert words(prose) == whole
    assert words(prose.replace("\n", " ")) == [word for word in whole if word != "\n"]


PROSE = "the old man\nwent to sea & back, well\n" * 3 + "a <b>tag\nand more of it\nto the end"


@given(st.one_of(TEXTS, TEXTS.map(lambda text: PROSE + text + PROSE)), st.integers(0, 300))
def test_a_cut_changes_no_word(text, near):
    pytest.importorskip("spacy")
    data = text.encode()
    place = cut(data, min(near, len(data)))
    assert place <= near
    assert words(data[:place].decode()) + words(data[place:].decode()) == words(text)


def test_cuts_stand_late_in_lines_that_are_left_as_they_are():
    data = b"one two\nthree four five\nsix seven"
    assert cut(data, len(data)) == data.index(b" five")
    assert cut(data, 10) == data.index(b" two")
    assert cut(data, 5) == 0
    assert cut(b"one two\r\nthree four\r\nfive six", 26) == data.index(b" four") + 1
    assert cut(b"one two\rthree four\n five", 20) == 0
    assert cut(b"one two\n<b>\nthree four\n", 20) == 3
    assert cut("one two\nthree “four” five\n".encode(), 30) == 3


@pytest.mark.parametrize("missing", ["ftfy", "spacy"])
def test_without_a_library_the_extra_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    text_rules._spacy.cache_clear()
    with pytest.raises(
        DataError, match=rf"text rules need {missing}: pip install 'sublayer\[spacy\]'"
    ):
        list(words_of("a text"))
    text_rules._spacy.cache_clear()


pytest.importorskip("ftfy")
pytest.importorskip("spacy")


CHARACTERS = "abdeghlnortw'.,\"&\\"

MERGES = (
    ("t", "h"),
    ("th", "e</w>"),
    ("e", "r"),
    ("n", "'"),
    ("l", "o"),
    ("lo", "w"),
    ("e", "r</w>"),
    ("low", "er</w>"),
    ("a", "a"),
    ("aa", "a</w>"),
    ("n'", "t</w>"),
)

PIECES = [
    "<unk>",
    *CHARACTERS,
    *(f"{character}</w>" for character in CHARACTERS),
    *(left + right for left, right in MERGES),
    "\n</w>",
]

IDS = {piece: id_ for id_, piece in enumerate(PIECES)}

TINY = Gpt1Tokenizer(Gpt1Vocabulary(IDS, MERGES))

FAST = with_normalization(TINY.vocabulary, "transformers")
NAMES = ("encoder_bpe_11.json", "vocab_11.bpe")


def pieces(text: str) -> list[str]:
    return TINY.pieces(TINY.encode(text.encode()).tolist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ert", ["er", "t</w>"]),
        ("lower", ["lower</w>"]),
        ("aaaa", ["aa", "a", "a</w>"]),
        ("don't", ["d", "o</w>", "n't</w>"]),
        ("the\n\n  the", ["the</w>", "\n</w>", "the</w>"]),
        ("th\u6f22e\u6f22", ["th", "<unk>", "e", "<unk>"]),
        ("a\\b", ["a", "\\", "b</w>"]),
    ],
)
def test_ids_are_those_worked_out_by_hand(text, expected):
    assert pieces(text) == expected
    assert released.encode(text, IDS, MERGES) == [IDS[piece] for piece in expected]


@examples(200)
@given(TEXTS)
def test_ids_are_those_of_the_released_code(text):
    assert TINY.encode(text.encode()).tolist() == released.encode(text, IDS, MERGES)


_THEIRS = None


@examples(200)
@given(TEXTS)
def test_transformers_rules_give_its_ids(text):
    from transformers import OpenAIGPTTokenizer

    global _THEIRS
    if _THEIRS is None:
        _THEIRS = OpenAIGPTTokenizer(vocab=dict(IDS), merges=list(MERGES))
    assert FAST.encode(text.encode()).tolist() == _THEIRS(text)["input_ids"]


@pytest.fixture
def published(real_data):
    folder = real_data / "vocab" / "gpt1"
    if not folder.is_dir():
        pytest.skip("no published vocabulary of GPT-1")
    return load_tokenizer(folder)


def test_the_published_vocabulary_has_its_ids(published):
    assert (published.vocab_size, published.unk_id, published.special_ids) == (40478, 0, (0,))
    ids = published.encode(b"the\nn't Very POSITIVE negative").tolist()
    assert ids == [481, 40477, 538, 963, 6353, 9503]
    # 238 characters, each again at the end of a word, then the merges in their order.
    ids, merges = published.vocabulary.ids, published.vocabulary.merges
    assert sorted(ids.values()) == list(range(40478))
    assert all(len(piece) == 1 for piece, id_ in ids.items() if 1 <= id_ <= 238)
    assert [ids[left + right] for left, right in merges] == list(range(477, 40477))
    # Only what earlier merges make is merged: then one by one is the same as all at once.
    made = {left + right: rank for rank, (left, right) in enumerate(merges)}
    assert all(made.get(piece, -1) < made["".join(pair)] for pair in merges for piece in pair)
    added = with_names(published, ("_start_", "_delimiter_", "_classify_"))
    assert list(added.added_ids.values()) == [40478, 40479, 40480]


def test_published_ids_of_books_are_those_of_the_released_code(published, real_data):
    vocabulary = published.vocabulary
    for book in sorted((real_data / "books").glob("*.txt"))[::3]:
        text = book.read_text()[5_000:25_000]
        expected = released.encode(text, vocabulary.ids, vocabulary.merges)
        assert published.encode(text.encode()).tolist() == expected
        assert 0 not in expected or "_" in text or "\u0153" in text


def test_decoding_puts_a_space_behind_each_word():
    text = "Lower the\nn't \u6f22".encode()
    ids = TINY.encode(text)
    assert TINY.decode(ids) == b"lower the \nn't "
    assert TINY.token_bytes[ids].tolist() == [5, 3, 1, 3, 0]
    # transformers' rules cut contractions at the apostrophe, and an end of line is a space.
    ids = FAST.encode(text)
    assert FAST.decode(ids) == b"lower the n ' t "
    assert b"".join(FAST.decode([id_]) for id_ in ids.tolist()) == FAST.decode(ids)
    assert FAST.token_bytes[ids].tolist() == [5, 3, 1, 1, 1, 0]


@pytest.mark.parametrize("normalization", ["published", "transformers"])
def test_a_file_keeps_its_rules_unless_others_are_named(tmp_path, normalization):
    tokenizer = with_normalization(TINY.vocabulary, normalization)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(loaded) is type(tokenizer)
    assert loaded.kind == tokenizer.kind == "gpt1-bpe"
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (loaded.special_ids, loaded.unk_id) == ((0,), 0)
    vocabulary = vocabulary_of(loaded)
    assert (dict(vocabulary.ids), vocabulary.merges) == (IDS, MERGES)
    names = ("_start_", "_classify_")
    with_names(tokenizer, names).save(tmp_path / "added.json")
    for name, expected in (("published", TINY), ("transformers", FAST)):
        loaded = load_tokenizer(tmp_path / "tokenizer.json", normalization=name)
        assert loaded.fingerprint == expected.fingerprint
        added = load_tokenizer(tmp_path / "added.json", normalization=name)
        assert added.fingerprint == with_names(expected, names).fingerprint
        assert vocabulary_of(added).ids == IDS


def test_rules_are_of_no_other_kind(tmp_path):
    train_tokenizer("bytes", ()).save(tmp_path / "tokenizer.json")
    with pytest.raises(ConfigError, match="data.normalization"):
        load_tokenizer(tmp_path, normalization="transformers")


VERSION = "#version: 0.2"
LINES = [VERSION, *map(" ".join, MERGES)]


def write(folder, names=NAMES, vocabulary=IDS, lines=LINES):
    (folder / names[0]).write_text(json.dumps(vocabulary))
    (folder / names[1]).write_text("\n".join([*lines, ""]))


@pytest.mark.parametrize("names", [NAMES, ("vocab.json", "merges.txt")])
def test_files_are_found_by_either_name_or_their_folder_and_go_together(tmp_path, names):
    write(tmp_path, names)
    for path in (tmp_path, *(tmp_path / name for name in names)):
        assert load_tokenizer(path).fingerprint == TINY.fingerprint
    fast = load_tokenizer(tmp_path / names[0], normalization="transformers")
    assert isinstance(fast, SubwordTokenizer) and fast.fingerprint == FAST.fingerprint
    for left, missing in (names, names[::-1]):
        content = (tmp_path / missing).read_bytes()
        (tmp_path / missing).unlink()
        for path in (tmp_path, tmp_path / left):
            with pytest.raises(DataError, match=f"{left} is without {missing}"):
                load_tokenizer(path)
        (tmp_path / missing).write_bytes(content)


def test_two_vocabularies_in_a_folder_are_refused(tmp_path):
    write(tmp_path)
    write(tmp_path, ("encoder_bpe_12.json", "vocab_12.bpe"))
    with pytest.raises(DataError, match="name the file to read"):
        load_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path / "vocab_12.bpe").fingerprint == TINY.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lines": ["t h"]}, "line 1: 't h' is not"),
        ({"lines": [VERSION, "t h e"]}, "line 2: 't h e' is not a merge"),
        ({"lines": [VERSION, "t h", "t h"]}, "line 3: 't' and 'h' are merged before"),
        ({"lines": [VERSION, "t h", "w o"]}, "line 3: 'w' and 'o' need 'wo', which"),
        ({"lines": LINES[:-1]}, r"json has \"n't</w>\", which no"),
        ({"vocabulary": {"a": 0, "b": 1}}, "has no <unk>"),
        ({"vocabulary": {"<unk>": 0, "a": 0}}, "have the same id, 0"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, changes, message):
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("normalization", ["published", "transformers"])
def test_special_pieces_have_no_text(tmp_path, normalization):
    names = ["<s>", "[PAD]", "_start_"]
    more = {**IDS, **{name: len(IDS) + 3 + number for number, name in enumerate(names)}}
    write(tmp_path, vocabulary=more)
    tokenizer = load_tokenizer(tmp_path, normalization=normalization)
    assert tokenizer.vocab_size == len(IDS) + 6
    assert tokenizer.special_ids == (0, *(more[name] for name in names))
    ids = [more["<s>"], *tokenizer.encode(b"the"), more["_start_"], len(IDS)]
    assert tokenizer.decode(ids).strip() == b"the"
    assert tokenizer.pad_id == more["[PAD]"]
    ids = tokenizer.encode(b"<s> _start_ [PAD]").tolist()
    assert not set(ids) & set(tokenizer.special_ids[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": {"<unk>": -1}}, "the id of '<unk>' is -1"),
        ({"merges": [["t"]]}, "its merges are missing or damaged"),
        ({"merges": [["t", "h"]]}, "which no merge of its merges makes"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, message):
    (tmp_path / "tokenizer.json").write_text(json.dumps({**TINY.content(), **change}))
    with pytest.raises(DataError, match=f"tokenizer.json: .*{message}"):
        load_tokenizer(tmp_path)


TEXT = (
    "It's the end of the road, the boat isn't here… the “others” don't\n"
    "see it; they're at sea (or so they say).\n\nCafé, thé, 1,000 others!\n"
) * 3


def counted(normalization: str) -> Counter:
    if normalization == "published":
        return Counter(word for word in released.words(TEXT) if word.strip())
    from transformers import OpenAIGPTTokenizer

    library = OpenAIGPTTokenizer()._tokenizer
    normal = library.normalizer.normalize_str(TEXT)
    return Counter(word for word, _ in library.pre_tokenizer.pre_tokenize_str(normal))


@pytest.mark.parametrize("normalization", ["published", "transformers"])
@pytest.mark.parametrize("n_merges", [20, 10_000])
def test_a_trained_vocabulary_is_that_of_a_slow_reference(normalization, n_merges):
    counts = counted(normalization)
    pieces, merges = released.train(counts, n_merges)
    last = ["\n</w>"] if normalization == "published" else []
    n_characters = len({character for word in counts for character in word})
    size = 1 + 2 * n_characters + len(merges) + len(last)
    for asked in ({"merges": n_merges}, {"vocab_size": size}):
        trained = train_tokenizer("gpt1-bpe", [TEXT.encode()], normalization=normalization, **asked)
        vocabulary = vocabulary_of(trained)
        assert sorted(vocabulary.ids, key=vocabulary.ids.get) == ["<unk>", *pieces, *last]
        assert list(vocabulary.merges) == merges
        assert trained.vocab_size == size
    assert len(merges) == n_merges or n_merges == 10_000
    if normalization == "published":
        expected = released.encode(TEXT, vocabulary.ids, merges)
        assert trained.encode(TEXT.encode()).tolist() == expected
        assert 0 not in expected and vocabulary.ids["\n</w>"] in expected


def test_differences_are_those_counted_by_hand():
    text = "Don't, don't\n\n“the” th\u00e9 -- low.\nlow a.b\n"
    found = count_differences(TINY.vocabulary, text.encode())
    # Whitespace divides: Don't, / don't / “the” / th\u00e9 / -- / low. / low / a.b
    assert (found.words, found.different) == (8, 6)
    assert found.changes == Counter(
        {
            (("do", "n't"), ("don", "'", "t")): 2,
            (('"',), ("“",)): 1,
            (('"',), ("”",)): 1,
            (("th\u00e9",), ("the",)): 1,
            (("--",), ("-", "-")): 1,
            (("a.b",), ("a", ".", "b")): 1,
        }
    )
    published = released.encode(text, TINY.vocabulary.ids, TINY.vocabulary.merges)
    newline = TINY.vocabulary.ids["\n</w>"]
    assert found.published == Counts(len(published), published.count(0), 2)
    assert published.count(newline) == 2
    fast = FAST.encode(text.encode()).tolist()
    assert found.transformers == Counts(len(fast), fast.count(0), 0)
