"""Files of tasks become splits: what is held out is never seen, what is kept is never stale."""

import json

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks import encoding, prepare
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import ConfigError, DataError
from sublayer.tasks.division import held_out
from tests.answerers import rule_of
from tests.published_files import write_published
from tests.task_files import FIRST_MARK, write_copa, write_rte, write_sst2, write_stsb

N_TRAIN, N_DEV = 60, 20

MARKS = [chr(FIRST_MARK + number) for number in range(N_TRAIN + N_DEV)]


@pytest.fixture
def marked(tmp_path):
    return write_sst2(tmp_path / "glue", {"train": N_TRAIN, "dev": N_DEV}, marks=True)


def prepared(folder, cache, *, format_="pair", tasks="sst2", tokenizer="wordpiece", **settings):
    config = DataConfig(
        tasks=tasks, path=str(folder), tokenizer=tokenizer, vocab_size=400, **settings
    )
    return prepare_tasks(config, SupervisedObjective(format=format_), cache=cache)


def marks_of(split):
    """The marks of the rows of a split, as they are written in its examples."""
    texts = [each.fields["sentence"] for part in split.parts for each in part.examples]
    return {text.strip()[-1] for text in texts}


def marks_read(split, n_steps=30):
    """The marks that occur in batches, and whether a token is unknown."""
    batches = ExampleBatches(split, rule=rule_of(split), batch_sequences=8, seed=3)
    text = ""
    for step in range(n_steps):
        tokens = batches.batch(step).read.tokens
        text += "".join(split.tokenizer.decode(row.numpy()).decode() for row in tokens)
    return {mark for mark in MARKS if mark in text}


def vocabulary(tokenizer):
    return json.dumps(tokenizer.content(), ensure_ascii=False)


@pytest.mark.parametrize("select", ["held-out", "dev"])
@pytest.mark.parametrize("parts", [("train", "dev"), ("train",), ("dev",)])
def test_what_is_held_out_and_what_is_scored_never_meet_training(marked, cache, parts, select):
    for part in {"train", "dev"} - set(parts):
        (marked / "SST-2" / f"{part}.tsv").unlink()
    if select == "dev" and len(parts) == 1:
        with pytest.raises(DataError, match=r"^data.select = dev selects by the development set,"):
            prepared(marked, cache, select=select)
        return
    data = prepared(marked, cache, select=select)
    train, valid, test = (marks_of(of_tasks(split)) for split in data.splits())
    assert train and valid and test
    # In the batches of four epochs, and in the vocabulary, are the marks of the rows that train.
    assert marks_read(of_tasks(data.train)) == train
    content = vocabulary(data.tokenizer)
    assert {mark for mark in MARKS if mark in content} == train
    assert not train & (valid | test)
    assert len(train | valid | test) == sum({"train": N_TRAIN, "dev": N_DEV}[p] for p in parts)
    if len(parts) == 1 or select == "held-out":
        assert not valid & test
    if len(parts) == 2:
        assert test == set(MARKS[N_TRAIN:])
        assert (valid == test) == (select == "dev")
    else:
        assert of_tasks(data.test).parts[0].published == parts[0]


def test_rows_that_are_held_out_are_the_same_for_every_tokenizer_and_format(marked, cache):
    numbers = [
        of_tasks(prepared(marked, cache, **settings).valid).parts[0].encoded.numbers.tolist()
        for settings in (
            {},
            {"format_": "text", "tokenizer": "unigram"},
            {"format_": "traversal", "tokenizer": "characters"},
        )
    ]
    assert numbers[1:] == numbers[:1] * 2
    assert len(numbers[0]) == 6
    part = of_tasks(prepared(marked, cache, held_out=0.25).valid).parts[0]
    is_out = held_out(part.read_examples(), 0.25, 2000)
    assert part.encoded.numbers.tolist() == np.flatnonzero(is_out).tolist()


@pytest.fixture
def counted(monkeypatch):
    """How often a split was encoded."""
    calls = []

    def count(task, examples, *rest, **settings):
        calls.append((task.name, len(examples)))
        return encoding.encode_examples(task, examples, *rest, **settings)

    monkeypatch.setattr(prepare, "encode_examples", count)
    return calls


def stored(data):
    return [split.ids.tolist() for split in data.splits()]


def test_what_was_encoded_is_kept_and_what_is_damaged_is_made_again(marked, cache, counted):
    first = prepared(marked, cache)
    assert len(counted) == 2
    again = prepared(marked, cache)
    assert len(counted) == 2
    assert stored(again) == stored(first) and again.checksums == first.checksums
    kept = sorted((cache / "tasks").iterdir())
    for damage in (lambda data: data[:-3], lambda data: b"", lambda data: b"x" * len(data)):
        for path in kept:
            path.write_bytes(damage(path.read_bytes()))
        assert stored(prepared(marked, cache)) == stored(first)
    assert len(counted) == 8
    assert sorted((cache / "tasks").iterdir()) == kept


def test_a_file_that_has_changed_anywhere_is_read_again(tmp_path, cache):
    folder = write_sst2(tmp_path / "glue", {"train": 300, "dev": 4})
    tokenizer = prepared(folder, cache).tokenizer

    def checksums():
        config = DataConfig(tasks="sst2", path=str(folder))
        data = prepare_tasks(config, SupervisedObjective(), tokenizer=tokenizer, cache=cache)
        texts = [example.fields["sentence"] for example in of_tasks(data.train).parts[0].examples]
        return data.checksums, texts

    first, _ = checksums()
    path = folder / "SST-2" / "train.tsv"
    head, last = path.read_text().rsplit("n299", 1)
    path.write_text(f"{head}n298{last}")
    second, _ = checksums()
    changed = [name for name in first if second[name] != first[name]]
    assert changed in (["train"], ["valid"], ["train", "valid"])
    for name in ("train", "dev"):
        path = folder / "SST-2" / f"{name}.tsv"
        path.write_text(path.read_text().replace("film", "book"))
    third, texts = checksums()
    assert all(third[split] != second[split] for split in ("train", "valid", "test"))
    assert any("book" in text for text in texts) and not any("film" in text for text in texts)


def test_formats_tokenizers_and_what_trains_do_not_share_what_is_kept(tmp_path, cache, counted):
    folder = write_rte(tmp_path / "glue")
    found = {}
    for format_, tokenizer in (
        ("pair", "wordpiece"),
        ("pair", "unigram"),
        ("text", "unigram"),
        ("traversal", "unigram"),
    ):
        data = prepared(folder, cache, format_=format_, tokenizer=tokenizer, tasks="rte")
        found[format_, tokenizer] = tuple(map(tuple, stored(data)))
    # The training part and the development set; as text also as what trains, apart.
    assert len(counted) == 4 * 2 + 1
    assert len(set(found.values())) == 3
    # A pair and a traversal are the same texts: what differs stands around them.
    assert found["pair", "unigram"] == found["traversal", "unigram"]


def test_a_mixture_has_a_part_of_each_task(tmp_path, cache):
    folder = write_rte(write_sst2(tmp_path / "glue", {"train": 30, "dev": 10}))
    write_stsb(folder), write_copa(folder)
    tasks = {"sst2": 1.0, "stsb": 2.0, "copa": 0.5, "rte": 1.0}
    data = prepared(folder, cache, format_="text", tokenizer="unigram", tasks=tasks)
    train = of_tasks(data.train)
    assert [part.task.name for part in train.parts] == list(tasks)
    assert [part.weight for part in train.parts] == list(tasks.values())
    limits = {"tasks": tuple(tasks), "size_limit": 5}
    limited = prepared(folder, cache, format_="text", tokenizer="unigram", **limits)
    assert {(part.weight, part.size_limit) for part in of_tasks(limited.train).parts} == {(None, 5)}
    assert train.n_examples == sum(len(part.encoded) for part in train.parts) == 27 + 3 * 54
    whole = train.encoded
    first = 0
    for part in train.parts:
        for place in range(len(part.encoded)):
            row, own = whole.rows_of(first + place)[0], part.encoded.rows_of(place)[0]
            for one, other in zip(whole.texts_of(row), part.encoded.texts_of(own), strict=True):
                assert one.tolist() == other.tolist()
        first += len(part.encoded)


def rows_of(folder, split, *lines):
    path = folder / "SST-2" / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["sentence\tlabel", *lines]) + "\n")


def test_rows_without_a_label_are_left_out_and_counted(tmp_path, cache):
    rows_of(tmp_path, "train", "fine\t1", "bad\t0", "so so\t-1", "dull\t0", "great\t1", "x")
    rows_of(tmp_path, "dev", "good\t1", "poor\t-1", "awful\t")
    for _ in range(2):  # the second time from what is kept
        data = prepared(tmp_path, cache)
        [train], [test] = of_tasks(data.train).parts, of_tasks(data.test).parts
        assert train.notes == [
            "1 row left out: no label (-1 or empty) (train.tsv:4)",
            "1 row left out: fewer than 2 fields (train.tsv:7)",
        ]
        assert test.notes == ["2 rows left out: no label (-1 or empty), first dev.tsv:3"]
        assert len(test.encoded) == 1 and sum(len(s.document_starts) for s in data.splits()) == 5


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        (["fine\t1"], ["good\t1"], "nothing can be held out of SST-2, train"),
        (["fine\t-1", "bad\t-1"], ["good\t1"], "no row of SST-2, train, is left to train on: 0 of"),
        (["fine\t1", "bad\t0"], ["good\t-1"], "no row of SST-2, dev, has a label to score by"),
        (["fine\t1", "bad\t2"], ["good\t1"], "train.tsv:3: '2' is no label of SST-2"),
        (["fine\t1", "good\t1", "nice\t1"], ["good\t1"], "all 2 rows to train on are positive"),
        ([], ["good\t1"], "train.tsv has no rows"),
        (None, ["fine\t1"], "nothing can be held out of SST-2, dev"),
    ],
)
def test_rows_of_which_nothing_can_be_learned_are_refused(tmp_path, cache, train, dev, message):
    if train is not None:
        rows_of(tmp_path, "train", *train)
    rows_of(tmp_path, "dev", *dev)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    with pytest.raises(DataError, match=message):
        prepared(tmp_path, cache, tokenizer=str(tmp_path / "vocab.txt"))


def test_vocabularies_without_the_marks_of_a_format_and_other_folders_are_refused(marked, cache):
    for kind in ("bytes", "bpe"):
        with pytest.raises(
            ConfigError, match=rf"of kind {kind}, has no \[CLS\], no \[SEP\], which"
        ):
            prepared(marked, cache, tokenizer=kind)
    with pytest.raises(ConfigError, match="of kind bytes, has no end of a text, which objective.f"):
        prepared(marked, cache, tokenizer="bytes", format_="text")
    with pytest.raises(DataError, match=r"has no files of RTE: `sublayer tasks .*` lists what"):
        prepared(marked, cache, tasks="rte")
    with pytest.raises(DataError, match=r"nowhere is no folder"):
        prepared(marked / "nowhere", cache)
    config = DataConfig(tasks="sst2", path=[str(marked), "other"])
    with pytest.raises(DataError, match=r"^data.path must name the folder of SST-2's files: one,"):
        prepare_tasks(config, SupervisedObjective(), cache=cache)


def test_wnli_is_learned_by_no_model_of_texts_but_answered_beside_another_task(tmp_path, cache):
    folder = write_sst2(tmp_path / "glue")
    texts = "Ann told Eve that she won {0} games.\tEve won {0} games."
    lines = [f"{number}\t{texts.format(number)}\t{number % 2}" for number in range(20)]
    (folder / "WNLI").mkdir()
    for split in ("train", "dev"):
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n"
        (folder / "WNLI" / f"{split}.tsv").write_text(text)
    with pytest.raises(
        DataError, match=r"^nothing of WNLI is left to train on in objective.format"
    ):
        prepared(folder, cache, format_="text", tokenizer="unigram", tasks="wnli")
    data = prepared(
        folder, cache, format_="text", tokenizer="unigram", tasks={"wnli": 1.0, "sst2": 1.0}
    )
    assert [len(part.encoded) for part in of_tasks(data.train).parts] == [0, 54]
    assert [len(part.encoded) for part in of_tasks(data.test).parts] == [20, 20]
    batches = ExampleBatches(
        of_tasks(data.train), rule=rule_of(data.train), batch_sequences=8, seed=1
    )
    assert sorted(n for step in range(27) for n in batches.chosen(step)) == sorted([*range(54)] * 4)


def test_either_development_set_of_mnli_selects(tmp_path, cache):
    folder = write_published(tmp_path / "tasks", "mnli")
    for select, published in (("dev", "dev_matched"), ("dev-mismatched", "dev_mismatched")):
        data = prepared(folder, cache, tasks="mnli", select=select)
        assert [part.published for part in of_tasks(data.valid).parts] == [published]
        assert len(of_tasks(data.test).parts) == 2
    with pytest.raises(DataError, match="SST-2 has dev: give data.select=dev"):
        prepared(write_sst2(tmp_path / "glue"), cache, tasks="sst2", select="dev-mismatched")


def test_some_examples_are_trained_on_and_more_of_them_are_these_and_others(marked, cache):
    whole = prepared(marked, cache)
    few, more = (prepared(marked, cache, train_examples=n) for n in (8, 20))
    train, valid, test = (marks_of(of_tasks(split)) for split in whole.splits())
    assert len(marks_of(of_tasks(few.train))) == 8 and len(marks_of(of_tasks(more.train))) == 20
    assert marks_of(of_tasks(few.train)) < marks_of(of_tasks(more.train)) < train
    # What is held out and what is scored is the same, whatever is trained on.
    for data in (few, more):
        assert marks_of(of_tasks(data.valid)) == valid and marks_of(of_tasks(data.test)) == test
    assert marks_of(of_tasks(few.train)) != set(MARKS[:8])
    with pytest.raises(DataError, match=r"train_examples = 55 are more than the 54 examples of"):
        prepared(marked, cache, train_examples=55)
