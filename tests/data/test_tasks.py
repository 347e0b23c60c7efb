"""Tasks: files become splits that never meet, rows that fit, and batches of each example once."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.data import DataConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.data.tasks import encoded as encoding
from sublayer.data.tasks import prepare
from sublayer.data.tasks.batches import ExampleBatches, build_row, of_tasks, whole_lengths
from sublayer.data.tasks.encoded import EncodedExamples, Marks, encode_examples, joined
from sublayer.data.tasks.figure import WordTokens
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.errors import DataError
from sublayer.tasks.own_table import find_parts
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Example, held_out
from tests.answerers import draw_examples, rule_of, split_of, tokenizer_of
from tests.data.releases import write_release
from tests.packed_rows import unpack
from tests.published_files import write_published
from tests.task_files import FIRST_MARK, write_sst2

N, N_TRAIN, N_DEV = 23, 60, 20


def batches_of(examples=None, format_="pair", *, size=5, orders="given", **mixed):
    split = split_of(examples or {"mrpc": draw_examples("mrpc", N)}, format_, **mixed)
    rule = rule_of(split, 48)
    return ExampleBatches(split, rule=rule, batch_sequences=size, seed=1, orders=orders)


@pytest.mark.parametrize("format_, kind, tasks", [
    ("pair", "", ["mrpc"]), ("pair", "", ["copa"]), ("traversal", "", ["sst2"]),
    ("text", "", ["sst2", "mrpc", "stsb"]), ("text", "decoder", ["sst2", "mrpc"]),
])  # fmt: skip
def test_a_step_of_tokens_is_the_next_examples_that_its_rows_hold(format_, kind, tasks):
    n_rows, context = 6, 200 if tasks == ["copa"] else 64
    split = split_of({name: draw_examples(name, 40) for name in tasks}, format_)
    rule = replace(rule_of(split, context, kind), fills_rows=True)
    plan = {"rule": rule, "batch_sequences": n_rows, "seed": 1}
    batches, used, shares = ExampleBatches(split, **plan), [], []
    for step in range(12):
        batch = batches.batch(step)
        used += batches.chosen(step).tolist()
        # Rows are narrower where all of their sequences are short.
        width = batch.read.tokens.shape[1]
        assert width <= context and (tasks == ["copa"] or len(batch.read) <= n_rows)
        assert batches.n_tokens(step) == batch.n_tokens
        shares.append(sum(batch.read.lengths) / (n_rows * context))
    assert np.mean(shares) > 0.85
    n_epoch = batches.n_epoch
    whole = [used[first : first + n_epoch] for first in range(0, len(used), n_epoch)]
    assert len(whole) > 1 and sorted(whole[0]) == list(range(n_epoch)) and whole[0] != whole[1]
    ends = np.cumsum([len(batches.chosen(step)) for step in range(12)])
    assert int(batches.n_epoch_steps) == (ends <= n_epoch).sum()
    assert ExampleBatches(split, **plan).chosen(11).tolist() == batches.chosen(11).tolist()


def test_both_orders_are_two_examples_of_an_epoch_or_one_is_drawn_for_every_use():
    def texts_read(batches, n_steps):
        """How often each row was read in each order, by its ids between the marks."""
        read = Counter()
        for batch in map(batches.batch, range(n_steps)):
            for owner, sequence in zip(batch.owners, unpack(batch), strict=True):
                n_first = int((sequence.segments == 0).sum())
                first, second = sequence.ids[1 : n_first - 1], sequence.ids[n_first:-1]
                read[batch.numbers[owner], tuple(first.tolist()), tuple(second.tolist())] += 1
        return read

    examples = {"mrpc": draw_examples("mrpc", N)}
    # A weight of one task alone changes nothing.
    batches = batches_of(examples, orders="both", size=2, weights={"mrpc": 3.0})
    assert batches.n_epoch == 2 * N
    read = texts_read(batches, N)
    assert len(read) == 2 * N and set(read.values()) == {1}
    assert all(read[number, second, first] == 1 for number, first, second in read)
    examples = {"mnli": draw_examples("mnli", N)}
    batches = batches_of(examples, orders="both", size=1)
    assert batches.n_epoch == N
    assert texts_read(batches, N) == texts_read(batches_of(examples, size=1), N)
    # By chance, an order is drawn anew for every use.
    batches, n_epochs = batches_of(orders="random", size=10), 20
    assert batches.n_epoch == N
    given = texts_read(batches_of(size=1), N).keys()
    read = texts_read(batches, n_epochs * N // 10)
    # Of 460 draws; six standard deviations are 64.
    assert abs(sum(read[key] for key in given) - n_epochs * N / 2) < 64
    assert sum(read.values()) == n_epochs * N
    used = [batches.chosen(step).tolist() for step in range(n_epochs * N // 10)]
    epochs = np.reshape(used, (n_epochs, N))  # which end within steps
    assert {tuple(sorted(epoch)) for epoch in epochs.tolist()} == {tuple(range(N))}
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == n_epochs
    assert all(0 < read[key] < n_epochs for key in given)


def test_a_mixture_draws_each_task_by_its_size_up_to_a_limit_or_by_its_weight():
    sizes = {"sst2": 40, "rte": 10, "cb": 6}
    examples = {name: draw_examples(name, n) for name, n in sizes.items()}

    def mixture(weights=None, size=7, size_limit=None):
        return batches_of(examples, "text", size=size, weights=weights, size_limit=size_limit)

    def drawn(batches, n_steps):
        counts = Counter(n for step in range(n_steps) for n in batches.chosen(step).tolist())
        bounds = np.cumsum([0, *sizes.values()]).tolist()
        return [[counts[n] for n in range(*pair)] for pair in pairwise(bounds)]

    assert drawn(mixture(), 8) == [[1] * n for n in sizes.values()]  # 56 examples, an epoch
    batches = mixture({"sst2": 1.0, "rte": 2.0, "cb": 1.0})
    assert batches.n_epoch == 56
    for n_epochs in (1, 5):
        found = drawn(batches, 8 * n_epochs)
        assert [sum(times) for times in found] == [14 * n_epochs, 28 * n_epochs, 14 * n_epochs]
        # In turn: no example is drawn a second time more than another.
        assert all(max(times) - min(times) <= 1 for times in found)
    # A limit of sizes bounds the share of a large task:
    # 8 of 40, 8 of 10 and all 6: shares of 8/22, 8/22 and 6/22.
    batches = mixture(size_limit=8, size=11)
    assert batches.n_epoch == 22
    for n_epochs in (1, 2, 5):
        totals = [sum(times) for times in drawn(batches, 2 * n_epochs)]
        assert totals == [8 * n_epochs, 8 * n_epochs, 6 * n_epochs]
    # Five epochs are one pass over the 40, four over the 10 and five over the 6.
    assert list(map(set, drawn(batches, 10))) == [{1}, {4}, {5}]
    assert ["SST-2" in note for note in batches.notes()] == [True, False]
    limited, plain = mixture(size_limit=40), mixture()
    assert limited.n_epoch == 56 and limited.notes() == []
    assert all(limited.chosen(step).tolist() == plain.chosen(step).tolist() for step in range(20))


@pytest.mark.parametrize("format_, context", [("pair", 9), ("text", 48)])
def test_tokens_and_cuts_are_counted_before_batches_are_made(format_, context):
    examples = draw_examples("sst2", N)
    n_long = sum(len(each.fields["sentence"].split()) > 7 for each in examples)
    split = split_of({"sst2": examples}, format_)
    # A label, where it is written, is one token, and its end.
    rule = replace(rule_of(split, context), target_length=1)
    batches = ExampleBatches(split, rule=rule, batch_sequences=5, seed=1)
    for step in range(6):
        batch = batches.batch(step)
        assert batches.n_tokens(step) == batch.n_tokens
        assert batch.read.tokens.shape[1] <= context
    [note] = batches.notes()
    counted = {"pair": f"{n_long} of {N} rows", "text": f"{N} targets"}
    assert n_long > 2 and note.startswith(counted[format_])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(0, 100))
def test_the_longest_text_loses_its_last_token_again_and_again(lengths, room):
    # Of two texts: ``_truncate_seq_pair`` of BERT's run_classifier.py; of equal ones the last.
    kept = list(lengths)
    while sum(kept) > room:
        kept[max(range(len(kept)), key=lambda index: (kept[index], index))] -= 1
    assert encoding.cut_lengths(lengths, room) == kept


def words_of(name, examples, format_="pair"):
    """Encode examples; return them, their marks, and what gives the words of all rows."""
    tokenizer = WordTokens([text for e in examples for text in (*e.fields.values(), *e.choices)])
    encoded = encode_examples(TASKS[name], examples, tokenizer, format_, trains=True)
    marks = encoding.find_marks(tokenizer, format_)

    def words(context, encoded=encoded, **how):
        rows = [build_row(encoded, row, marks, context, **how) for row in range(encoded.n_rows)]
        return [tokenizer.decode(ids).decode().split() for ids, _ in rows]

    return encoded, marks, words


def text(letter, n):
    return " ".join(f"{letter}{number}" for number in range(n))


def test_the_longer_text_or_the_article_gives_way_at_its_end():
    example = Example("0", {"sentence1": text("a", 9), "sentence2": text("b", 4)}, label=0)
    encoded, marks, words = words_of("mrpc", [example])
    assert " ".join(*words(10)) == "[CLS] a0 a1 a2 a3 [SEP] b0 b1 b2 [SEP]"
    assert build_row(encoded, 0, marks, 10)[1].tolist() == [0] * 6 + [1] * 4
    # Exchanged, the same tokens are kept of either text, but for what is equal.
    assert " ".join(*words(10, is_swapped=True)) == "[CLS] b0 b1 b2 b3 [SEP] a0 a1 a2 [SEP]"
    assert np.minimum(whole_lengths(encoded, marks), 10).tolist() == [10]
    assert whole_lengths(encoded, marks).tolist() == [16]
    # The article of RACE gives way, and the last tokens of question and option are read.
    fields = {"article": text("a", 30), "question": text("q", 126)}
    example = Example("0", fields, label=0, choices=(text("x", 4), "y0"))
    _, _, words = words_of("race_high", [example])
    first, second = words(140)
    # 128 of 130 are read: the article keeps nine.
    assert first[1:10] == [f"a{n}" for n in range(9)] and first[10] == "[SEP]"
    assert first[11:13] == ["q2", "q3"] and first[-2:] == ["x3", "[SEP]"]
    assert second[1:11] == [f"a{n}" for n in range(10)] and second[12:14] == ["q0", "q1"]
    assert len(first) == len(second) == 140
    # Without room for the article it is gone, and the rest is cut at its end.
    assert words(20)[0] == ["[CLS]", "[SEP]", *(f"q{n}" for n in range(2, 19)), "[SEP]"]


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3), min_size=1, max_size=6),
    st.integers(4, 30),
)
def test_the_length_of_every_row_is_known_before_it_is_built(texts, context):
    lengths = [length for row in texts for length in row]
    n_rows, places = len(texts), np.arange(len(texts) + 1)
    starts = [np.cumsum([0, *each]) for each in (lengths, map(len, texts))]
    labels = {"labels": np.zeros(n_rows), "is_labelled": np.ones(n_rows, dtype=bool)}
    rest = {"cuts": places[:-1] % 2, "numbers": places[:-1]}
    encoded = EncodedExamples(np.arange(sum(lengths)), *starts, places, **labels, **rest)
    marks = Marks(900, 901, 902, 903)
    expected = [len(build_row(encoded, row, marks, context)[0]) for row in range(n_rows)]
    assert np.minimum(whole_lengths(encoded, marks), context).tolist() == expected
    assert max(expected) <= context


def test_examples_are_selected_and_joined_with_all_that_is_theirs():
    def race(number, n_choices):
        fields = {"article": text(f"a{number}", number + 1), "question": f"q{number}"}
        choices = tuple(f"c{number}{place}" for place in range(n_choices))
        return Example(str(number), fields, label=number % 2, choices=choices)

    encoded, _, words = words_of("race_high", [race(0, 2), race(1, 4), race(2, 3), race(3, 2)])
    chosen, whole = encoded.select(np.array([2, 0])), words(30)
    both = joined([chosen, encoded.select(np.array([3]))])
    assert both.numbers.tolist() == [2, 0, 3] and both.labels.tolist() == [0, 0, 1]
    for found in (both, EncodedExamples.of_arrays(both.arrays())):
        assert words(30, found) == [*whole[6:9], *whole[:2], *whole[9:]]
    assert len(encoded.select(np.array([], dtype=np.int64))) == 0


@pytest.fixture
def marked(tmp_path):
    return write_sst2(tmp_path / "glue", {"train": N_TRAIN, "dev": N_DEV}, marks=True)


def prepared(folder, cache, *, format_="pair", tasks="sst2", tokenizer="wordpiece", **settings):
    fields = {"tokenizer": tokenizer, "vocab_size": 400, **settings}
    config = DataConfig(tasks=tasks, path=str(folder), **fields)
    return prepare_tasks(config, SupervisedObjective(format=format_), cache=cache)


def marks_of(split):
    parts = of_tasks(split).parts
    return {each.fields["sentence"].strip()[-1] for part in parts for each in part.examples}


@pytest.mark.parametrize("parts, select", [
    (("train", "dev"), "held-out"), (("train", "dev"), "dev"),
    (("train",), "held-out"), (("dev",), "held-out"),
])  # fmt: skip
def test_what_is_held_out_and_what_is_scored_never_meet_training(marked, cache, parts, select):
    def marks_in(text):
        return {mark for mark in marks if mark in text}

    marks = [chr(FIRST_MARK + number) for number in range(N_TRAIN + N_DEV)]
    for part in {"train", "dev"} - set(parts):
        (marked / "SST-2" / f"{part}.tsv").unlink()
    data = prepared(marked, cache, select=select)
    train, valid, test = map(marks_of, data.splits())
    # In the batches of four epochs, and in the vocabulary, are the marks of the rows that train.
    split = of_tasks(data.train)
    batches = ExampleBatches(split, rule=rule_of(split), batch_sequences=8, seed=3)
    tokens = [row.numpy() for step in range(30) for row in batches.batch(step).read.tokens]
    assert marks_in(b"".join(map(split.tokenizer.decode, tokens)).decode()) == train
    assert marks_in(split.tokenizer.serialize().decode()) == train
    assert train and valid and test and not train & (valid | test)
    assert len(train | valid | test) == sum({"train": N_TRAIN, "dev": N_DEV}[p] for p in parts)
    assert valid == test if select == "dev" else not valid & test
    if len(parts) == 2:
        assert test == set(marks[N_TRAIN:])
    else:
        assert of_tasks(data.test).parts[0].published == parts[0]


def test_a_table_in_three_files_is_not_divided(tmp_path, cache, capsys):
    def sizes(**settings):
        options = {"columns": {"text": "text", "label": "label"}, "vocab_size": 250, **settings}
        data = prepared(tmp_path, cache, tasks="table", **options)
        notes = [note for note in of_tasks(data.train).parts[0].notes if "not used" in note]
        return [of_tasks(split).n_examples for split in data.splits()], notes

    for name, n_rows in (("train", 40), ("validation", 6), ("test", 8)):
        rows = [f"{name if n else 'train'} [SEP] {n},{n % 2}" for n in range(n_rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    assert find_parts(tmp_path) == {"train", "dev", "test"}
    assert sizes(select="parts") == ([40, 6, 8], [])
    notes = capsys.readouterr().err
    assert all(said in notes for said in ("[SEP] 40 times: they", "2 classes", "dev: 1 of 6 rows"))
    for select, expected in (("held-out", [36, 4, 6]), ("dev", [40, 6, 6])):
        found, [note] = sizes(select=select)
        assert found == expected and "test.csv is not used" in note
    (tmp_path / "test.csv").write_text("text,label\nnew,\n")
    found, [note] = sizes(select="parts")
    assert found == [36, 4, 6] and "1 row without a label" in note


@pytest.mark.parametrize("name", ["race", "snli", "story_cloze"])
def test_a_published_test_set_is_scored_where_it_has_labels(tmp_path, cache, name):
    folder, asked = write_published(tmp_path, name), {"tasks": name, "score_on": "test"}
    parts = [of_tasks(split).parts[0] for split in prepared(folder, cache, **asked).splits()]
    assert [part.published == "test" for part in parts] == [False, False, True]
    train, valid, _ = (set(part.encoded.numbers.tolist()) for part in parts)
    assert train and valid and not train & valid


def test_equal_texts_are_encoded_once(monkeypatch):
    n_texts, counted = Counter(), WordTokens.encode_many

    def count(self, texts):
        n_texts.update(texts)
        return counted(self, texts)

    monkeypatch.setattr(WordTokens, "encode_many", count)
    [example] = draw_examples("race_high", 1)
    encode_examples(TASKS["race_high"], [example] * 3, tokenizer_of(), "pair", trains=True)
    assert set(n_texts.values()) == {1} and example.fields["article"].encode() in n_texts


def test_rows_that_are_held_out_are_the_same_for_every_tokenizer_format_and_number(marked, cache):
    texts = prepared(marked, cache, format_="text", tokenizer="unigram")
    plain = prepared(marked, cache)
    numbers = [of_tasks(data.valid).parts[0].encoded.numbers.tolist() for data in (plain, texts)]
    assert numbers[0] == numbers[1] and len(numbers[0]) == 6
    part = of_tasks(prepared(marked, cache, held_out=0.25).valid).parts[0]
    is_out = held_out(part.read_examples(), 0.25, 2000)
    assert part.encoded.numbers.tolist() == np.flatnonzero(is_out).tolist()
    # Of more examples that are trained on, some are those of fewer.
    found = [prepared(marked, cache, train_examples=n).splits() for n in (8, 20)]
    (few, *others), (more, *again) = (list(map(marks_of, splits)) for splits in found)
    train, *held = map(marks_of, plain.splits())
    assert len(few) == 8 and len(more) == 20 and few < more < train
    assert others == again == held
    for settings, message in (
        ({"select": "dev-mismatched"}, "second development set"),
        ({"train_examples": 55}, "train_examples = 55 .* 54"),
    ):
        with pytest.raises(DataError, match=message):
            prepared(marked, cache, **settings)


def test_what_was_encoded_is_kept_and_what_is_damaged_is_made_again(marked, cache, monkeypatch):
    def stored(data):
        return [split.ids.tolist() for split in data.splits()]

    calls = Mock(side_effect=encode_examples)
    monkeypatch.setattr(prepare, "encode_examples", calls)
    first, again = prepared(marked, cache), prepared(marked, cache)
    assert calls.call_count == 2
    assert stored(again) == stored(first) and again.checksums == first.checksums
    kept = sorted((cache / "tasks").iterdir())
    for damage in (lambda data: data[:-3], lambda data: b"", lambda data: b"x" * len(data)):
        for path in kept:
            path.write_bytes(damage(path.read_bytes()))
        assert stored(prepared(marked, cache)) == stored(first)
    assert calls.call_count == 8
    assert sorted((cache / "tasks").iterdir()) == kept
    # By another tokenizer, and as text, nothing of it is taken.
    for format_ in ("pair", "text"):
        other = prepared(marked, cache, format_=format_, tokenizer="unigram")
        assert stored(other) != stored(first)
    assert calls.call_count == 13, "as text also as what trains, apart"


def test_a_file_that_has_changed_anywhere_is_read_again(tmp_path, cache):
    folder = write_sst2(tmp_path / "glue", {"train": 300, "dev": 4})
    config = DataConfig(tasks="sst2", path=str(folder))
    rest = {"tokenizer": prepared(folder, cache).tokenizer, "cache": cache}
    found = [prepare_tasks(config, SupervisedObjective(), **rest).checksums]
    for name, old, new in (("train", "n299", "n298"), ("dev", "film", "book")):
        path = folder / "SST-2" / f"{name}.tsv"
        path.write_text(new.join(path.read_text().rsplit(old, 1)))
        found.append(prepare_tasks(config, SupervisedObjective(), **rest).checksums)
    first, second, third = found
    assert {name for name in first if second[name] != first[name]} in ({"train"}, {"valid"})
    assert {name for name in first if third[name] != second[name]} == {"test"}


def rows_of(folder, split, *lines):
    text = "\n".join(["sentence\tlabel", *lines, ""])
    write_release(folder, {f"SST-2/{split}.tsv": text.encode()})


def test_rows_without_a_label_are_left_out_and_counted(tmp_path, cache):
    rows_of(tmp_path, "train", "fine\t1", "bad\t0", "so so\t-1", "dull\t0", "great\t1", "x")
    rows_of(tmp_path, "dev", "good\t1", "poor\t-1", "awful\t")
    write_release(tmp_path, {"SST-2/train.jsonl": b"{}"})
    for _ in range(2):  # the second time from what is kept
        data = prepared(tmp_path, cache)
        [train], [test] = of_tasks(data.train).parts, of_tasks(data.test).parts
        *notes, beside = train.notes
        assert beside == "train.jsonl: not read, since train.tsv is"
        places = [note.rpartition("(")[2] for note in notes]
        assert places == ["train.tsv:4)", "train.tsv:7)"]
        assert test.notes == ["2 rows left out: no label (-1 or empty), first dev.tsv:3"]
        assert len(test.encoded) == 1 and sum(len(s.document_starts) for s in data.splits()) == 5


@pytest.mark.parametrize("train, dev, message", [
    (["fine\t1"], ["good\t1"], "is held out for selection"),
    (["fine\t-1", "x", "bad\t-1"], ["good\t1"],
     r"no row of SST-2, train, is left .* rows: 2 rows left out: no label .*, first train.tsv:2;"
     r" 1 row left out: fewer than 2 fields \(train.tsv:3\)$"),
    (["fine\t1", "bad\t0"], ["good\t-1", "so\t-1"],
     r"no row of SST-2, dev, has a label .*: 2 rows left out: no label .* first dev.tsv:2$"),
    (["fine\t1", "good\t1", "nice\t1"], ["good\t1"], "label positive"),
])  # fmt: skip
def test_rows_of_which_nothing_can_be_learned_are_refused(tmp_path, cache, train, dev, message):
    rows_of(tmp_path, "train", *train)
    rows_of(tmp_path, "dev", *dev)
    with pytest.raises(DataError, match=message):
        prepared(tmp_path, cache, tokenizer="bytes")


def test_wnli_is_learned_by_no_model_of_texts_but_answered_beside_another_task(tmp_path, cache):
    folder, settings = write_sst2(tmp_path / "glue"), {"format_": "text", "tokenizer": "unigram"}
    texts = "Ann told Eve that she won {0} games.\tEve won {0} games."
    lines = [f"{number}\t{texts.format(number)}\t{number % 2}\n" for number in range(20)]
    text = "".join(["index\tsentence1\tsentence2\tlabel\n", *lines]).encode()
    write_release(folder, {f"WNLI/{split}.tsv": text for split in ("train", "dev")})
    with pytest.raises(DataError, match="WNLI has no examples to train on"):
        prepared(folder, cache, tasks="wnli", **settings)
    data = prepared(folder, cache, tasks={"wnli": 1.0, "sst2": 1.0}, **settings)
    split, test = of_tasks(data.train), of_tasks(data.test)
    found = [[len(part.encoded) for part in each.parts] for each in (split, test)]
    assert found == [[0, 54], [20, 20]]
    batches = ExampleBatches(split, rule=rule_of(split), batch_sequences=8, seed=1)
    assert sorted(n for step in range(27) for n in batches.chosen(step)) == sorted([*range(54)] * 4)
