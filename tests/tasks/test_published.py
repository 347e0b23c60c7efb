"""Every task read as its publisher writes it, from the hub's copies and from downloads."""

import hashlib
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.files.cache_folder import Download
from sublayer.tasks.finding import Release
from sublayer.tasks.registry import (
    ROWS,
    SUITES,
    TASKS,
    cached_folder,
    find_files,
    locate_files,
    read_split,
)
from sublayer.tasks.task import Answer
from tests.breadth import rows
from tests.data.releases import write_archive, write_zip
from tests.published_files import PUBLISHED, write_published
from tests.task_files import write_rte, write_sst2, write_stsb
from tests.tasks.files import BROWN, OFFICIAL, PASSAGE, ids, labels, read, texts, write

FAR, SENT = "Far -- It is far. It is 0.", "<b>Sent 1: </b>Ann ran.<br> It is 0."
MIDDLE = "middle 0.\nHe went home to eat, sleep, run and swim."
OPTIONS = ("to eat", "to sleep", "to run", "to {swim}")
HIS = {"span1_index": 0, "span2_index": 11}
READ = {
    # The first row's texts, the labels of three rows, and what else the first has.
    "sst2": (["ending scene scene dull n60 "], [0, 1, 0], {}),
    "cola": (["He left lovely 0."], [0, 1, 0], {}),
    "mrpc": (['He "saw" lovely 0.', "Saw lovely he."], [0, 1, 0], {}),
    "qqp": (["How is lovely 0?", "How?"], [0, 1, 0], {}),
    "stsb": (["idea song joke", "lovely awful poor dull lovely"], [2.0, 1.0, 5.0], {}),
    "mnli": (["It is lovely 0.", "Is it?"], [0, 1, 2], {"source": "It is lovely 0."}),
    "qnli": (["Who is 0?", "He is lovely."], [0, 1, 0], {"source": "Who is 0?"}),
    "rte": (["film story ending joke tdev0", "the story"], [0, 1, 0], {}),
    "wnli": (["Ann met Bo 0; she was lovely.", "Bo was lovely."], [0, 1, 0], {}),
    "boolq": ([FAR, "is it far"], [1, 0, 1], {"source": FAR}),
    "cb": (["A. It is 0.", "B"], [2, 1, 2], {}),
    "copa": (["It fell. It is 0.", "effect"], [1, 0, 1],
             {"choices": ("It was pushed.", "It broke."), "source": "It fell. It is 0."}),
    "multirc": ([SENT, "Who ran?", "Ann"], [1, 0, 0],
                {"id": "0.7.20", "group": "0.7", "source": SENT,
                 "extra": {"passage": 0, "question": 7, "answer": 20}}),
    "record": ([f"{PASSAGE} It is 0.", "@placeholder was warm"], [2, 0, 2],
               {"choices": ("Ann Lee", "Bo Lee", "Rome"), "answers": (Answer("Rome"),),
                "id": "0.9", "source": f"{PASSAGE} It is 0.", "extra": {"passage": 0, "query": 9}}),
    "sg_rte": (["A. It is 0.", "B."], [0, 1, 0], {"source": "A. It is 0."}),
    "wic": (["A class.", "Classes end. It is 0.", "class"], [0, 1, 0],
            {"extra": {"start1": 2, "end1": 7, "start2": 0, "end2": 7}}),
    "wsc": ([f"{BROWN} It is 0.", "Mark", "his"], [1, 0, 1],
            {"source": f"{BROWN} It is 0.", "extra": HIS}),
    "axb": (["A.", "B."], [1], {}), "axg": (["He won.", "A."], [0, 0], {"group": "5"}),
    "squad2": (["Of article 0 the film is lovely.", "What is lovely?"], [None] * 3,
               {"id": "dev0", "answers": (Answer("film", 17),), "source": "0"}),
    "race": ([MIDDLE, "He went home   _  ."], [0, 1, 1],
             {"id": "middle0.txt.0", "choices": OPTIONS, "source": MIDDLE}),
    "snli": (["A lovely man 0.", "A man."], [0, 1, 2], {"id": "0.jpg#4r1n"}),
    "scitail": (['The lovely "cell" 0.', "A cell 0."], [0, 1, 0], {"source": "A cell 0."}),
    "story_cloze": (['Rick 0 grew up. He, too, left. Once. A "no".'], [0, 1, 0],
                    {"id": "id0", "choices": ("It was lovely.", "It was awful.")}),
    "dpr": (["The bee 0 landed on the flower 0 because it had pollen.", "it"], [1, 0, 1],
            {"choices": ("The bee 0", "the flower 0"), "source": "the bee 0, the flower 0"}),
}  # fmt: skip
SPLITS = {"mnli": "dev_matched", "dpr": "test"}
LABELLED_TESTS = {"race", "snli", "scitail", "story_cloze", "dpr"}
_OTHERS = {"sst2": write_sst2, "stsb": write_stsb, "rte": write_rte}


def _published(folder, name):
    if name in PUBLISHED:
        write_published(folder, name)
    elif name in _OTHERS:
        _OTHERS[name](folder)
    else:
        place = {"axb": "AX-b", "axg": "AX-g"}[name]
        write(folder / place / f"{place}.jsonl", OFFICIAL[place])
    return read(name, folder, SPLITS.get(name, "dev"))


@pytest.mark.parametrize("name", READ)
def test_every_task_is_read_as_published(tmp_path, name):
    found, task = _published(tmp_path, name), TASKS[name]
    first, numbers, more = READ[name]
    assert (texts(found)[0], labels(found)[:3]) == (first, numbers)
    assert tuple(found.examples[0].fields) == task.fields
    assert {attribute: getattr(found.examples[0], attribute) for attribute in more} == more
    assert all(example.is_labelled for example in found.examples)
    assert found.skipped.total() == (name == "snli") and not found.repaired and not found.kept
    asked = "test_mismatched" if name == "mnli" else "test"
    if asked in find_files(task, tmp_path):
        found = read(name, tmp_path, asked)
        assert {example.is_labelled for example in found.examples} == {name in LABELLED_TESTS}
        assert (set(labels(found)) == {None}) is (name not in LABELLED_TESTS)


def _hub_row(name, example):
    fields, extra = example.fields, example.extra
    if name == "multirc":
        return {**fields, "idx": {"paragraph": extra["passage"], **extra}, "label": example.label}
    if name == "record":
        answers = [answer.text for answer in example.answers]
        return {**fields, "entities": list(example.choices), "answers": answers, "idx": extra}
    choices = {f"choice{n}": text for n, text in enumerate(example.choices, 1)}
    return {**fields, **choices, **extra, "label": example.label, "idx": int(example.id)}


FILES = [
    "{hub}/{split}-00000-of-00001.parquet", "{suite}/{hub}/{split}/0000.parquet",
    "{suite}/{hub}/data/{split}-00000-of-00001.parquet", "{hub}/{split}.jsonl",
    "{hub}_{split}.jsonl", "{hub}/{split}.json",
    "{hub}/{split}.csv", "{suite}/{hub}_{split}.csv", "{suite}/{hub}/{split}.tsv",
]  # fmt: skip
ON_THE_HUB = [*product((row.task for row in SUITES["glue"].rows), FILES),
              *product((row.task for row in SUITES["superglue"].rows), FILES[:6])]  # fmt: skip
ON_THE_HUB = [(task.name, file) for task, file in ON_THE_HUB if task.name != "ax"]


@pytest.mark.parametrize(("name", "file"), rows(ON_THE_HUB, 10))
def test_every_task_is_read_as_the_hub_has_it(tmp_path, name, file):
    published = _published(tmp_path / "published", name).examples
    content = [_hub_row(name, example) for example in published]
    suite = "glue" if TASKS[name].suite == "glue" else "super_glue"
    hub = {"sg_rte": "rte"}.get(name, name)
    split = "test" if name in ("axb", "axg") else "validation"
    split += SPLITS.get(name, "").removeprefix("dev")
    path = tmp_path / file.format(suite=suite, hub=hub, split=split)
    if path.suffix in (".csv", ".tsv"):
        lines = [content[0].keys(), *(map(str, row.values()) for row in content)]
        content = "\n".join(map({".csv": ",", ".tsv": "\t"}[path.suffix].join, lines))
    write(path, content)
    found = read(name, tmp_path, SPLITS.get(name, "dev"))
    if name == "axg":
        published = [replace(example, group="") for example in published]
    assert (found.examples, len(set(ids(found)))) == (published, len(published))


EARLIER = {
    # Files as they were published before a suite had them: texts and label of the second example.
    "cola": ({"in_domain_train.tsv": "gj04\t0\t*\tA b.\ngj04\t1\t\tC d.\n",
              "in_domain_dev.tsv": "a\t1\t\tE.\n", "out_of_domain_dev.tsv": "a\t1\t\tF.\n"},
             {"train": 2, "dev": 2}, ["C d."], 1),
    "stsb": ({"sts-train.csv": 'm\tM\t2012\t1\t2.5\tA "b.\tC d.\tLicence\tLicence\n'
                               "m\tM\t2012\t2\t5.0\tE.\tF.\n"}, {"train": 2}, ["E.", "F."], 5.0),
    "qqp": ({"quora_duplicate_questions.tsv":
             "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWho?\tWhat?\t0\n"
             '1\t3\t4\tWho?\t"What\nis ""x""?"\t1\n'}, {"train": 2}, ["Who?", 'What\nis "x"?'], 1),
    "copa": ({"copa-dev.xml": "<copa-corpus>" + "".join(
        f'<item id="{n}" asks-for="cause" most-plausible-alternative="{n}"><p>It {n}.</p>'
        "<a1>Rain.</a1><a2>Snow.</a2></item>" for n in (1, 2)) + "</copa-corpus>"},
        {"dev": 2}, ["It 2.", "cause"], 1),
    "wic": ({"dev.data.txt": "go\tV\t0-1\tGo on .\tI go .\n"
                             "place\tN\t2-0\tIn my place .\tPlace it .\n",
             "dev.gold.txt": "T\nF\n"}, {"dev": 2}, ["In my place .", "Place it .", "place"], 0),
    "boolq": ({"train.jsonl": '{"question": "is it", "passage": "It is.", "answer": true}\n'
                              '{"question": "is he", "passage": "He is.", "answer": false}\n'},
              {"train": 2}, ["He is.", "is he"], 0),
    "multirc": ({"splitv2/dev_83-fixedIds.json": '{"data": [{"id": "News/1", "paragraph": '
                 '{"text": "It is.", "questions": [{"question": "Is it?", "idx": "0", "answers": ['
                 '{"text": "a", "isAnswer": true}, {"text": "b", "isAnswer": false}]}]}}]}'},
                {"dev": 2}, ["It is.", "Is it?", "b"], 0),
    "record": ({"dev.json": '{"version": "1.0", "data": [{"id": "a", "source": "CNN", "passage": '
                '{"text": "Ann met Bob", "entities": [{"start": 0, "end": 2}, {"start": 8, "end": '
                '10}]}, "qas": [{"id": "1", "query": "Q", "answers": [{"text": "Ann"}]}, '
                '{"id": "2", "query": "R", "answers": [{"start": 8, "end": 10, "text": "Bob"}]}]}]}'
                }, {"dev": 2}, ["Ann met Bob", "R"], 1),
    "wsc": ({"WSCollection.xml": "<collection><schema><text><txt1>\nThe dog bit\nthe man as</txt1>"
             "<pron>he</pron><txt2>ran.</txt2></text><answers><answer>The dog</answer><answer>The "
             "man</answer></answers><correctAnswer> B. </correctAnswer></schema></collection>"},
            {"dev": 2}, ["The dog bit the man as he ran.", "the man", "he"], 1),
    **dict.fromkeys(("rte", "sg_rte"), ({
        "dev2.xml": '<entailment-corpus><pair id="1" value="FALSE"><t>C\n d.</t><h>E.</h></pair>'
                    '<pair id="2" value="TRUE"><t>A.</t><h>B.</h></pair></entailment-corpus>',
        "RTE2_dev.xml": '<x><pair id="1" entailment="YES"><t>F.</t><h>G.</h></pair></x>',
        "RTE3_test_3ways.xml": '<x><pair id="1" entailment="UNKNOWN"><t>H.</t><h>I.</h></pair></x>',
    }, {"train": 3, "dev": 1}, ["C d.", "E."], 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", EARLIER)
def test_files_of_a_task_are_read_as_published_before_its_suite(tmp_path, name):
    files, sizes, fields, label = EARLIER[name]
    for file, content in files.items():
        write(tmp_path / name / file, content)
    found = find_files(TASKS[name], tmp_path)
    splits = {split: read_split(TASKS[name], split, paths) for split, paths in found.items()}
    assert {split: len(read.examples) for split, read in splits.items()} == sizes
    read = splits.get("train") or splits["dev"]
    example = read.examples[1]
    assert ([*example.fields.values()], example.label) == (fields, label)
    assert not read.skipped and not read.kept
    listed = ROWS[name].files
    assert all(Path(file).name in listed for file in files if "_" in file)


@pytest.mark.parametrize("name, split, n_rows, n_sources", [
    ("cola", "dev", 1043, 1043), ("multirc", "dev", 4848, 83), ("wsc", "dev", 104, 41),
    ("race_middle", "test", 1436, 362), ("squad", "dev", 1190, 48),
])  # fmt: skip
def test_published_files_have_their_published_sizes(real_data, name, split, n_rows, n_sources):
    found = read(name, real_data, split)
    sources = {example.source or example.id for example in found.examples}
    assert (len(found.examples), len(sources)) == (n_rows, n_sources)
    assert not found.skipped and not found.kept
    assert found.repaired.total() == (9 if name == "wsc" else 0)
    for example in found.examples:
        for answer in example.answers:
            assert example.fields["context"][answer.start :].startswith(answer.text)


def _serve(monkeypatch, url, path):
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    download = Download(f"{url}/{path.name}", None, "sha256", checksum, may_differ=True)
    row = replace(ROWS["sst2"], release=Release("sst2", (download,)))
    monkeypatch.setitem(ROWS, "sst2", row)


@pytest.mark.parametrize("name", ["SST-2.zip", "SST-2.tar.gz"])
def test_a_task_is_downloaded_once(site, tmp_path, monkeypatch, name):
    members = dict.fromkeys(("SST-2/train.tsv", "SST-2/dev.tsv"), b"sentence\tlabel\nfine\t1\n")
    others = ("SST-2/original/dev.tsv", "__MACOSX/._dev.tsv", "../evil.tsv", "/SST-2/dev.tsv")
    write_packed = write_zip if name.endswith("zip") else write_archive
    path = write_packed(site[0] / name, {**members, **dict.fromkeys(others, b"no")})
    _serve(monkeypatch, site[1], path)
    task, cache = TASKS["sst2"], tmp_path / "cache"
    assert cached_folder(task, cache) is None
    found = locate_files(task, cache=cache)
    assert read_split(task, "dev", found["dev"]).examples[0].label == 1
    files = sorted(path.name for path in cache.rglob("*") if path.is_file())
    assert files == ["dev.tsv", "train.tsv"]
    path.unlink()
    assert locate_files(task, cache=cache) == found
    assert cached_folder(task, cache) == cache / "tasks" / "sst2"


@pytest.mark.parametrize("members, message", [
    (None, "SST-2.zip is a damaged archive"),
    ({"README": b"moved"}, "SST-2.zip holds none of the expected files"),
])  # fmt: skip
def test_another_archive_is_refused_and_not_kept(site, tmp_path, monkeypatch, members, message):
    path = write_zip(site[0] / "SST-2.zip", members or {})
    path.write_bytes(path.read_bytes() if members else b"PK")
    _serve(monkeypatch, site[1], path)
    with pytest.raises(DataError, match=message):
        locate_files(TASKS["sst2"], cache=tmp_path / "cache")
    assert cached_folder(TASKS["sst2"], tmp_path / "cache") is None
    path.unlink()
    download = f"download {site[1]}/SST-2.zip, .*--data DIR, "
    with pytest.raises(DataError, match=f"SST-2.zip cannot be .* {download}"):
        locate_files(TASKS["sst2"], cache=tmp_path)
    with pytest.raises(DataError, match=r"Story Cloze cannot be downloaded: .*--data DIR"):
        locate_files(TASKS["story_cloze"], cache=tmp_path)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.release])
def test_files_of_a_release_have_an_address_and_a_checksum(name):
    for file in ROWS[name].release.files:
        assert file.url.startswith(("http://", "https://"))
        assert file.algorithm == "sha256" and re.fullmatch("[0-9a-f]{64}", file.checksum)


@pytest.mark.parametrize("name, files", [
    ("mnli", "MNLI/dev_matched.tsv"), ("ax", "AX.tsv"), ("sg_rte", "RTE/train.jsonl"),
    ("race", "RACE/test/middle/1.txt RACE/test/high/1.txt"),
    ("snli", "snli_1.0/snli_1.0_train.jsonl"),
    ("scitail", "SciTailV1.1/tsv_format/scitail_1.0_train.tsv"),
])  # fmt: skip
def test_a_file_of_a_release_is_kept_and_found_in_the_cache(name, files, tmp_path):
    release, content = ROWS[name].release, {"premise": "A", "hypothesis": "B"}
    is_packed, written = release.files[0].url.endswith((".zip", ".tar.gz")), []
    for path in files.split():
        assert re.fullmatch(release.keeps, path) if is_packed else "/" not in path
        written.append(write(tmp_path / "tasks" / release.folder / path, content))
    (paths,) = find_files(TASKS[name], cached_folder(TASKS[name], tmp_path)).values()
    assert sorted(paths) == sorted(written)
