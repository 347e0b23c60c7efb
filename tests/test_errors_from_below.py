"""Errors of the system, a library or a layer below come up as the error of the layer above."""

import io
import os
import subprocess
from collections import deque
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace as Having
from unittest.mock import Mock

import numpy as np
import pyarrow
import pytest
import torch

from sublayer import cli
from sublayer.commands.predict import file as predict_file
from sublayer.config.recipe import Recipe
from sublayer.data.corpora import named, published
from sublayer.data.sentencepiece import unigram_training
from sublayer.data.shards import workers
from sublayer.data.text.files import FileDocument
from sublayer.data.tokenizers.words import WordCache
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted
from sublayer.files.parquet import python_value
from sublayer.files.tensor_parts import StoredTensors
from sublayer.interop.config_reader import Content
from sublayer.interop.tensorflow import bundle_index
from sublayer.objective.supervised import predicting
from sublayer.runs import lengthening
from sublayer.study.cluster.place import ClusterPlace
from sublayer.study.execution import process, worker
from sublayer.suite import evaluate as suite_evaluate
from sublayer.system import lock
from sublayer.system.streams import Stream
from sublayer.tasks.predicting.writers import ParquetWriter
from sublayer.tasks.records import Record
from sublayer.tasks.submissions.folder import write_submission
from sublayer.training.checkpoints.snapshots import _headers

AT, BELOW = "<file>", "<file>/a"
INDEX = bundle_index.Index(Path("x.index"), 1, {})
ENTRY = bundle_index.Entry(torch.float32, (1,), 0, 0, 4, 0, ())
STAGE = Having(name="tasks")
NOWHERE = ClusterPlace("ray", "127.0.0.1:1")
C4 = named.CORPORA["c4"]


def failing(error):
    def fails(*args, **kwargs):
        raise error

    return fails


def not_utf8(path):
    buffers = [None, pyarrow.py_buffer(np.int32([0, 1])), pyarrow.py_buffer(b"\xff")]
    python_value(pyarrow.Array.from_buffers(pyarrow.string(), 1, buffers)[0], path, 7)


def mixed(path):
    asked = Having(kind="jsonl", path=path, names=["a"])
    writer = ParquetWriter(io.BytesIO(), asked, Having(added=[], cells=lambda named: {}))
    for value in (1, "text"):
        writer.add(Having(values={"a": value}), None)
    writer.finish()


def removed(path):
    file = FileDocument(path, path.parent)
    file.digest()
    path.unlink()
    file.check_unchanged()


def held(path, **options):
    with lock.held(path, **options):
        pass


def recipe(**data):
    return Recipe.model_validate({"data": data})


# A function, the content of a file or None, its arguments, of which AT is the file, and the error.
ROWS = {
    DataError: [
        ("data.corpora.albert_intrinsic._lines", None, ("a", b"{"), "not JSON"),
        ("data.corpora.watched._race_passages", b"\x1f\x8b", (AT,), "damaged archive"),
        ("data.gpt1.files._read_merges", b"\xff", (AT,), "file, "),
        ("data.sentencepiece.model_file.parse_model", None, (b"\xff\xff",), "damaged"),
        ("data.sentencepiece.model_file.unpacked", None, ({"model": "?"},), "not base64"),
        ("data.text.files.read_path", None, ("a" * 5000, AT), "cannot read"),
        ("data.text.records._object", None, ("[" * 10**5, AT, 3), "line 3"),
        ("files.storage.check_name", None, (Path("\udcff"), DataError), "is not UTF-8"),
        ("study.chain.keys._identity", None, (recipe(path="gone"), STAGE), "stage tasks: "),
        ("study.chain.keys._files", None, (recipe(tasks=["rte"], path="gone"), STAGE), "stage"),
        ("system.extras.extra_module", None, ("no_such", "this"), "no_such"),
        ("tasks.fetching._fetch", b"", (Having(files=()), BELOW), "cannot write"),
        ("tasks.finding.entries", b"", (AT,), "cannot be read"),
        (removed, b"text\n", (AT,), "cannot read"),
        (not_utf8, None, (AT,), "row 7: byte 0xff"),
        (mixed, None, (AT,), "several types"),
        (Record(Path("a"), 3, {"b": 1}).value, None, ("a",), "a:3 has no a"),
        (partial(write_submission, has_archive=False), b"", (BELOW, {}, []), "written"),
    ],
    CheckpointError: [
        ("files.checkpoints.read_state", None, (AT,), "is missing"),
        ("interop.gpt1.released_arrays.read_piece", None, (AT,), "cannot read"),
        ("interop.tensorflow.bundle_index.read_index", None, (AT,), "cannot be read"),
        ("interop.tensorflow.bundle_index._tail", None, (AT,), "cannot be read"),
        ("interop.tensorflow.tensor_bundle._decode", None, (INDEX, b"\xff"), "not UTF-8"),
        ("interop.tensorflow.tensor_bundle._file_bytes", None, (INDEX, AT), "promises"),
        ("interop.tensorflow.tensor_bundle._file_bytes", b"", (INDEX, BELOW), "cannot be read"),
        ("interop.tensorflow.tensor_bundle._read_bytes", None, (AT, ENTRY), "cannot be read"),
        ("study.execution.one_run._read", b"[]", (AT, dict[str, float]), "damaged|object"),
        ("study.items.reading.read_study_items", None, (AT,), "is missing"),
        ("study.items.reading.read_study_items", b"\xfd7zXZ\0 no items", (AT,), "is damaged"),
        ("training.processes.part_files.write_parts", b"", ({"a": torch.zeros(1)}, BELOW), "write"),
        (lambda at: _headers(StoredTensors(at, at)), None, (AT,), "cannot be read"),
        (Content("it", {}).resolve, None, ({"width": 3, "vocab_size": 5},), "it asks .* model.wid"),
    ],
    ConfigError: [
        ("files.paths.expanded", None, ("~nobody-here/a",), "nobody-here"),
        ("study.chain.baselines._read", None, (AT,), "scores them"),
        ("study.chain.columns.primary_column", None, ("s", [STAGE], "task"), "is no column"),
        ("study.cluster.schedulers.ray_cluster._check_there", None, (NOWHERE,), "nothing answers"),
        ("study.plan_file.read_plan", None, (AT,), "holds no comparison"),
        ("suite.file.read_suite", b"speed = 3", (AT,), "suite .*file: "),
        ("suite.file.read_suite", b'[[probes]]\nnames = ["no"]', (AT,), "suite .*file: "),
        (held, b"", (AT,), "is not a folder"),
    ],
    FileExistsError: [(partial(held, waits_for="others"), b"", (AT,), "exists")],
    io.UnsupportedOperation: [(Stream(io.StringIO(), "it").fileno, None, (), "fileno")],
}
CASES = [(error, *row) for error, rows in ROWS.items() for row in rows]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("error, act, content, arguments, words", CASES)
def test_what_fails_on_a_file(tmp_path, error, act, content, arguments, words):
    if isinstance(act, str):
        module, _, name = act.rpartition(".")
        act = getattr(import_module(f"sublayer.{module}"), name)
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    places = {AT: path, BELOW: path / "a"}
    given = [places.get(each, each) if isinstance(each, str) else each for each in arguments]
    with pytest.raises(error, match=words):
        deque(act(*given) or ())


def attended():
    worker._Worker(Having(send=lambda message: None)).attend(b"", process.SimpleQueue())


def answered():
    predict_file._answer(Mock(), Having(rows=[], choice_names=[]), None, io.BytesIO())


# What is replaced by something that raises, what is done, and the error.
PATCHED = [
    (subprocess, "Popen", OSError(12, "no room"), lambda: workers._Worker({}), DataError),
    (published.PublishedRecords, "_of_hub", DataError("no"), lambda: C4(Path("a")), DataError),
    (predicting, "answer_rows", KeyboardInterrupt("after 0 rows"), answered, Interrupted),
    (os, "write", OSError(28, "full"), lambda: lock._open(Path("lock")), OSError),
    (cli, "_run", RuntimeError("ours"), lambda: cli._outcome([]), RuntimeError),
    (worker._Worker, "_make_run", ZeroDivisionError("ours"), attended, ZeroDivisionError),
]


@pytest.mark.parametrize("where, what, cause, act, error", PATCHED)
def test_what_a_call_raises(tmp_path, monkeypatch, where, what, cause, act, error):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(where, what, failing(cause))
    with pytest.raises(error, match=getattr(cause, "strerror", None) or str(cause)):
        act()
    assert [*tmp_path.iterdir()] == []


def test_words_are_known_only_where_they_were_encoded():
    cache = WordCache()
    with pytest.raises(KeyboardInterrupt):
        cache.encode(["a"], failing(KeyboardInterrupt()))
    assert cache.encode(["a"], lambda words: [[7]]).tolist() == [7]


def test_what_stops_lines_stops_the_trainer_of_pieces():
    with pytest.raises(DataError, match="line 2"):
        unigram_training.train_pieces(map(failing(DataError("line 2")), [1]), vocab_size=100)


def test_a_suite_that_is_interrupted_or_trained_together_ends(monkeypatch):
    def measured(error, **options):
        measure = Having(title="b", score=failing(error), columns=())
        work = Having(candidates=[Having(name="a")], measures=[measure])
        return suite_evaluate._measured(work, (0, 0), None, **options)

    with pytest.raises(Interrupted, match="interrupted while b of a"):
        measured(Interrupted("stopped"))
    with pytest.raises(RuntimeError, match="ours"):
        measured(RuntimeError("ours"), together=True)
    assert measured(RuntimeError("ours")).reason == "it failed: ours"


def test_a_damaged_state_leaves_a_run_of_minutes_without_steps(tmp_path, monkeypatch):
    (tmp_path / "checkpoints/step-00000001").mkdir(parents=True)
    (tmp_path / "checkpoints/step-00000001/state.json").write_text("[]")
    monkeypatch.setattr(lengthening, "run_steps", lambda given, train_tokens: None)
    monkeypatch.setattr(lengthening, "family_of", lambda objective: Mock())
    with pytest.raises(ConfigError, match="state.json .*: give train.steps instead"):
        lengthening._steps(tmp_path, Having(train=Having(minutes=1), objective=0), Having(train=0))
