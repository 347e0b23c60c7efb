"""Errors of the system, a library or a layer below come up as the error of the layer above."""

import io
import os
import subprocess
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
from sublayer.data.corpora import albert_intrinsic, named, published, watched
from sublayer.data.gpt1 import files
from sublayer.data.sentencepiece import model_file, unigram_training
from sublayer.data.shards import workers
from sublayer.data.text import records
from sublayer.data.text.files import FileDocument, read_path
from sublayer.data.tokenizers.words import WordCache
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted
from sublayer.files.checkpoints import read_state
from sublayer.files.parquet import python_value
from sublayer.files.paths import expanded
from sublayer.files.storage import check_name
from sublayer.files.tensor_parts import StoredTensors
from sublayer.interop.config_reader import Content
from sublayer.interop.gpt1.released_arrays import read_piece
from sublayer.interop.tensorflow import bundle_index, tensor_bundle
from sublayer.objective.supervised import predicting
from sublayer.runs import lengthening
from sublayer.study.chain import baselines, keys
from sublayer.study.chain.columns import primary_column
from sublayer.study.cluster.place import ClusterPlace
from sublayer.study.cluster.schedulers import ray_cluster
from sublayer.study.execution import one_run, process, worker
from sublayer.study.items.reading import read_study_items
from sublayer.study.plan_file import read_plan
from sublayer.suite import evaluate as suite_evaluate
from sublayer.suite.file import read_suite
from sublayer.system import lock
from sublayer.system.extras import extra_module
from sublayer.system.streams import Stream
from sublayer.tasks import fetching
from sublayer.tasks.finding import entries
from sublayer.tasks.predicting.writers import ParquetWriter
from sublayer.tasks.records import Record
from sublayer.tasks.submissions.folder import write_submission
from sublayer.training.checkpoints import snapshots
from sublayer.training.processes.part_files import write_parts

INDEX = bundle_index.Index(Path("x.index"), 1, {})
ENTRY = bundle_index.Entry(torch.float32, (1,), 0, 0, 4, 0, ())
STAGE = Having(name="tasks")
NOWHERE = ClusterPlace("ray", "127.0.0.1:1")
WIDE = {"width": 3, "vocab_size": 5}
C4 = named.CORPORA["c4"]


def failing(error):
    def fails(*args, **kwargs):
        raise error

    return fails


def closed():
    stream = io.StringIO()
    stream.close()
    return Stream(stream, "it")


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


def data(**fields):
    return Recipe.model_validate({"data": fields})


# What is done with a file of some content, or none, and a part of the error.
ROWS = {
    DataError: [
        ("passages", None, lambda at: [*albert_intrinsic._lines("a", b"{")], "not JSON"),
        ("race", b"\x1f\x8b", lambda at: [*watched._race_passages(at)], "damaged archive"),
        ("merges", b"\xff", lambda at: [*files._read_merges(at)], "merges, "),
        ("model", None, lambda at: model_file.parse_model(b"\xff\xff"), "damaged"),
        ("base64", None, lambda at: model_file.unpacked({"model": "?"}), "not base64"),
        ("removed", b"text\n", removed, "cannot read"),
        ("long name", None, lambda at: read_path("a" * 5000, at), "cannot read"),
        ("nested", None, lambda at: records._object("[" * 10**5, at, 3), "line 3"),
        ("parquet", None, not_utf8, "row 7: byte 0xff"),
        ("surrogate", None, lambda at: check_name(Path("\udcff"), DataError), "is not UTF-8"),
        ("text", None, lambda at: keys._identity(data(path=str(at)), STAGE), "stage tasks: "),
        ("rows", None, lambda at: keys._files(data(tasks=["rte"], path=str(at)), STAGE), "stage"),
        ("extra", None, lambda at: extra_module("no_such", "this"), "no_such"),
        ("release", b"", lambda at: fetching._fetch(Having(files=()), at / "a" / "b"), "write"),
        ("tasks", b"", entries, "cannot be read"),
        ("columns", None, mixed, "several types"),
        ("value", None, lambda at: Record(at, 3, {"b": 1}).value("a"), ":3 has no a"),
        ("file", b"", lambda at: write_submission(at / "a", {}, [], has_archive=False), "written"),
    ],
    CheckpointError: [
        ("state", None, read_state, "is missing"),
        ("array", None, read_piece, "cannot read"),
        ("index", None, bundle_index.read_index, "cannot be read"),
        ("tail", None, bundle_index._tail, "cannot be read"),
        ("key", None, lambda at: tensor_bundle._decode(INDEX, b"\xff"), "not UTF-8"),
        ("shard", None, lambda at: tensor_bundle._file_bytes(INDEX, at), "promises"),
        ("file", b"", lambda at: tensor_bundle._file_bytes(INDEX, at / "a"), "cannot be read"),
        ("bytes", None, lambda at: tensor_bundle._read_bytes(at, ENTRY), "cannot be read"),
        ("record", b"[]", lambda at: one_run._read(at, dict[str, float]), one_run._REMEDY),
        ("items", None, read_study_items, "is missing"),
        ("packed items", b"\xfd7zXZ\0 no items", read_study_items, "is damaged"),
        ("tensors", None, lambda at: snapshots._headers(StoredTensors(at, at)), "cannot be read"),
        ("settings", None, lambda at: Content("it", {}).resolve(WIDE), "it asks .* model.width"),
        ("parts", b"", lambda at: write_parts({"a": torch.zeros(1)}, at / "a"), "cannot write"),
    ],
    ConfigError: [
        ("home", None, lambda at: expanded("~nobody-here/a"), "nobody-here"),
        ("baselines", None, baselines._read, "scores them"),
        ("cluster", None, lambda at: ray_cluster._check_there(NOWHERE), "nothing answers"),
        ("column", None, lambda at: primary_column("s", [Having(name="accuracy")], "acc"), "is no"),
        ("plan", None, read_plan, "holds no comparison"),
        ("suite", b"speed = 3", read_suite, "suite .*suite: "),
        ("probes", b'[[probes]]\nnames = ["no"]', read_suite, "suite .*probes: "),
        ("no folder", b"", held, "is not a folder"),
    ],
    FileExistsError: [("waiting", b"", lambda at: held(at, waits_for="others"), "exists")],
    io.UnsupportedOperation: [("stream", None, lambda at: closed().fileno(), "fileno")],
}
CASES = [(error, *row) for error, rows in ROWS.items() for row in rows]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("error, name, content, act, words", CASES)
def test_what_fails_on_a_file(tmp_path, error, name, content, act, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=words):
        act(path)


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
