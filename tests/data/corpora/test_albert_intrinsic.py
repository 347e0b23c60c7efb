import json

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.corpora.albert_intrinsic import read_passages
from sublayer.data.prepare import prepare, prepare_text
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError

SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "A",
            "paragraphs": [
                {"context": "One came. Two left.", "qas": []},
                {"context": "Three.", "qas": []},
            ],
        },
        {
            "title": "B",
            "paragraphs": [{"context": "One came. Two left.", "qas": [{"is_impossible": True}]}],
        },
    ],
}
RACE = {
    "id": "high1.txt",
    "article": "Four is\na number.",
    "questions": ["?"],
    "options": [["a"]],
    "answers": ["A"],
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "intrinsic"
    (path / "race").mkdir(parents=True)
    (path / "dev-v2.0.json").write_text(json.dumps(SQUAD, indent=1))
    (path / "race" / "1.txt").write_text(json.dumps(RACE))
    (path / "race" / "2.jsonl").write_text(
        json.dumps(RACE)
        + "\n\n"
        + json.dumps(RACE | {"article": "F\u00fcnf!"}, ensure_ascii=False)
        + "\n"
    )
    return path


def test_every_distinct_passage_is_a_document_in_order(folder, cache):
    found = read_passages([str(folder)], cache)
    texts = [b"One came. Two left.", b"Three.", b"Four is\na number.", "F\u00fcnf!".encode()]
    assert [document.read() for document in found] == texts
    assert found[3].name == f"{folder}/race/2.jsonl, document at line 3"
    entries = [str(folder / "race" / "*.txt"), str(folder / "dev-v2.0.json")]
    assert [document.read() for document in read_passages(entries, cache)] == [
        texts[2],
        texts[0],
        texts[1],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain words", r"line 1: not JSON: Expecting value"),
        (
            '{"data": [{"paragraphs": [{"text": "a"}]}]}',
            "line 1: data without paragraphs that have a context",
        ),
        ('{"data": [3]}', "line 1: data without paragraphs"),
        ('{"text": "a"}', "line 1: no article"),
        ("[]", "line 1: no article"),
        ('{"article": "a"}\n{"article": 3}', "line 2: no article"),
        ('{"article": "a"}\n{"article": "b"', "line 2: not JSON"),
        ("\n", "line 1|has no text|no document with text"),
    ],
)
def test_a_file_that_is_neither_is_named(tmp_path, cache, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=message) as raised:
        read_passages([str(tmp_path / "a.json")], cache)
    assert "\n" not in str(raised.value)


def test_all_of_it_is_scored_sentence_by_sentence(folder, cache):
    tokenizer = train_tokenizer("bytes", ())
    split = prepare_text(
        tokenizer, path=str(folder), corpus="albert-intrinsic", sentences="prose", cache=cache
    )
    texts = ["One came.", "Two left.", "Three.", "Four is a number.", "F\u00fcnf!"]
    assert tokenizer.decode(split.ids).decode() == "".join(texts)
    assert split.sentence_starts.tolist() == [0, 9, 18, 24, 41]
    assert split.document_starts.tolist() == [0, 18, 24, 41]
    assert split.sources == ("albert-intrinsic",)
    assert (
        len(
            prepare_text(
                tokenizer, path=str(folder), corpus="albert-intrinsic", cache=cache
            ).document_starts
        )
        == 4
    )


def test_a_recipe_divides_it_by_document(folder, cache):
    data = prepare(
        DataConfig(path=str(folder), corpus="albert-intrinsic", context=2, split="50/25/25"),
        cache=cache,
    )
    assert sum(sizes["documents"] for sizes in data.sizes().values()) == 4


def test_real_passages_are_read(real_data, cache):
    squad = real_data / "squad" / "squad_v1.1_dev_240_paragraphs.json"
    race = real_data / "race" / "race_dev_middle.jsonl"
    found = [document.read().decode() for document in read_passages([str(squad), str(race)], cache)]
    contexts = [
        each["context"]
        for article in json.loads(squad.read_bytes())["data"]
        for each in article["paragraphs"]
    ]
    articles = [json.loads(line)["article"] for line in race.read_text().splitlines()]
    assert found == list(dict.fromkeys(contexts + articles))
    tokenizer = train_tokenizer("bytes", ())
    split = prepare_text(
        tokenizer,
        path=(str(squad), str(race)),
        corpus="albert-intrinsic",
        sentences="prose",
        cache=cache,
    )
    assert len(split.document_starts) == len(found)
    assert 5 < len(split.sentence_starts) / len(found) < 25
