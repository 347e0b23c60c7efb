"""Errors of the system, a library or a layer below come up as the error of the layer above."""

import io
from collections import deque
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace as Having
from unittest.mock import Mock

import numpy as np
import pyarrow
import pytest
import torch

from sublayer.config.recipe import Recipe
from sublayer.data.corpora import CORPORA
from sublayer.data.text.files import FileDocument
from sublayer.data.tokenizers.base import WordCache
from sublayer.data.tokenizers.sentencepiece import train_pieces
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted
from sublayer.files.lines import python_value
from sublayer.files.storage import held
from sublayer.files.tensors import StoredTensors
from sublayer.interop.foreign_config import Content
from sublayer.runs import resume
from sublayer.study.stage_recipes import StageRecipes
from sublayer.suite.evaluate import Work
from sublayer.system.terminal import Stream
from sublayer.tasks.predicting import write_answers
from sublayer.tasks.records import Record
from sublayer.tasks.submissions import write_submission
from sublayer.training.checkpoints import _headers

AT, BELOW = "<file>", "<file>/a"
GONE, RTE = (
    Recipe.model_validate({"data": {"path": "gone", "tasks": tasks}}) for tasks in (None, ["rte"])
)
STAGE, TASKS = (Having(name="tasks", finetunes=finetunes) for finetunes in (False, True))


def failing(error):
    def fails(*args, **kwargs):
        raise error

    return fails


def texts_of_stage(recipe, stage):
    stages = {"chain": Having(starts=lambda *_: True), "planned": lambda *_: Having(recipe=recipe)}
    recipes = Having(**stages, keys=lambda texts_of: texts_of("an arm", stage))
    StageRecipes.find_keys(recipes, {})


def not_utf8(path):
    buffers = [None, pyarrow.py_buffer(np.int32([0, 1])), pyarrow.py_buffer(b"\xff")]
    python_value(pyarrow.Array.from_buffers(pyarrow.string(), 1, buffers)[0], path, 7)


def mixed(path):
    asked = Having(kind="jsonl", path=path, names=["a"])
    rows = [(Having(values={"a": value}), None) for value in (1, "text")]
    columns = Having(added=[], cells=lambda named: {})
    write_answers(io.BytesIO(), "parquet", asked, columns, rows)


def removed(path):
    file = FileDocument(path, path.parent)
    file.digest()
    path.unlink()
    file.check_unchanged()


# A function, the content of a file or None, its arguments, of which AT is the file, and the error.
ROWS = {
    DataError: [
        ("data.corpora._parsed", None, ("{", "a", 3), "a, line 3.*not JSON"),
        ("data.corpora._race_passages", b"\x1f\x8b", (AT,), "damaged archive"),
        ("data.tokenizers.gpt1._read_merges", b"\xff", (AT,), "file, "),
        ("data.tokenizers.sentencepiece.parse_model", None, (b"\xff\xff",), "damaged"),
        ("data.tokenizers.sentencepiece.unpacked", None, ({"model": "?", "sha256": ""},),
         "not base64"),
        ("data.text.files.read_path", None, ("a" * 5000, AT), "cannot read"),
        ("data.text.documents.json_records", b"\n" * 2 + b"{" + b'"a":[' * 10**5, (AT,),
         ":3 is not"),
        ("files.storage.check_name", None, (Path("\udcff"), DataError), "is not UTF-8"),
        (texts_of_stage, None, (GONE, STAGE), "stage tasks: "),
        (texts_of_stage, None, (RTE, TASKS), "stage tasks: "),
        ("errors.extra_module", None, ("no_such", "this"), "no_such"),
        ("tasks.finding.Release._fetch", b"", (Having(files=()), BELOW), "cannot write"),
        (partial(train_pieces, vocab_size=9), None, (map(failing(DataError("2")), [1]),), "2"),
        ("tasks.finding.entries", b"", (AT,), "cannot be read"),
        (removed, b"text\n", (AT,), "cannot read"),
        (not_utf8, None, (AT,), "row 7: byte 0xff"),
        (mixed, None, (AT,), "mixed types"),
        (Record(Path("a"), 3, {"b": 1}).value, None, ("a",), "a:3 has no a"),
        (partial(write_submission, has_archive=False), b"", (BELOW, {}, []), "written"),
    ],
    CheckpointError: [
        ("files.checkpoints.read_state", None, (AT,), "is missing"),
        ("interop.gpt.read_piece", None, (AT,), "cannot read"),
        ("study.jobs.run._read", b"[]", (AT, dict[str, float]), "damaged|object"),
        ("judging.folders.read_study_items", None, (AT,), "is not there"),
        ("training.sharded.write_parts", b"", ({"a": torch.zeros(1)}, BELOW), "write"),
        (lambda at: _headers(StoredTensors(at, at)), None, (AT,), "cannot be read"),
        (Content("it", {}).resolve, None, ({"width": 3, "vocab_size": 5},), "a recipe: model.wid"),
    ],
    ConfigError: [
        ("files.storage.expanded", None, ("~nobody-here/a",), "nobody-here"),
        ("study.collect.read_baselines", None, (Path(), {"sst2": "no.json"}, ()), "to score them"),
        ("study.columns.primary_column", None, ("s", [STAGE], "task"), "is not a column"),
        ("study.jobs.backends._check_answer", None, ("ray", "127.0.0.1:1"), "nothing answers"),
        ("study.plan_file.read_plan", None, (AT,), "holds no comparison"),
        ("suite.file.read_suite", b"speed = 3", (AT,), "suite .*file: "),
        ("suite.file.read_suite", b'[[probes]]\nnames = ["no"]', (AT,), "suite .*file: "),
        (lambda path: held(path).__enter__(), b"", (AT,), "is not a folder"),
    ],
    FileExistsError: [(lambda path: held(path, waits_for="x").__enter__(), b"", (AT,), "exists")],
    io.UnsupportedOperation: [(Stream(io.StringIO(), "it").fileno, None, (), "fileno")],
}  # fmt: skip
CASES = [(error, *row) for error, rows in ROWS.items() for row in rows]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("error, act, content, arguments, words", CASES)
def test_what_fails_on_a_file(tmp_path, error, act, content, arguments, words):
    act, path = resolve_name(f"sublayer.{act}") if isinstance(act, str) else act, tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    places = {AT: path, BELOW: path / "a"}
    given = [places.get(each, each) if isinstance(each, str) else each for each in arguments]
    with pytest.raises(error, match=words):
        deque(act(*given) or ())


# What is replaced by something that raises, the cause, what is then called, and the error.
PATCHED = [
    ("subprocess.Popen", OSError(12, "no room"), "data.shards._start_encoder", (), DataError),
    ("sublayer.data.corpora.HubSet.documents", DataError("no"),
     CORPORA["c4"], (Path("a"),), DataError),
    ("sublayer.cli.texts.write_answers", KeyboardInterrupt("after 0 rows"),
     "cli.texts._write_answers",
     (Mock(is_written=False, **{"task.kind": "number"}),
      Having(notes=[], names=[], rows=[], choice_names=[]), "jsonl", None), Interrupted),
    ("os.write", OSError(28, "full"), "files.storage._open", (Path("lock"),), OSError),
    ("sublayer.cli.main._run", RuntimeError("ours"), "cli.main._outcome", ([],), RuntimeError),
]  # fmt: skip


@pytest.mark.parametrize("replaced, cause, act, arguments, error", PATCHED)
def test_what_a_call_raises(tmp_path, monkeypatch, replaced, cause, act, arguments, error):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(replaced, failing(cause))
    act = resolve_name(f"sublayer.{act}") if isinstance(act, str) else act
    with pytest.raises(error, match=getattr(cause, "strerror", None) or str(cause)):
        act(*arguments)
    assert [*tmp_path.iterdir()] == []


def test_words_are_known_only_where_they_were_encoded():
    cache = WordCache()
    with pytest.raises(KeyboardInterrupt):
        cache.encode(["a"], failing(KeyboardInterrupt()))
    assert cache.encode(["a"], lambda words: [[7]]).tolist() == [7]


def test_a_suite_that_is_interrupted_or_trained_together_ends(monkeypatch):
    def measured(error, **options):
        measure = Having(title="b", score=failing(error), columns=())
        work = Having(candidates=[Having(name="a")], measures=[measure])
        return Work._measured(work, (0, 0), None, **options)

    with pytest.raises(Interrupted, match="interrupted while b of a"):
        measured(Interrupted("stopped"))
    with pytest.raises(RuntimeError, match="ours"):
        measured(RuntimeError("ours"), together=True)
    assert measured(RuntimeError("ours")).reason == "failed: ours"


def test_a_damaged_state_leaves_a_run_of_minutes_without_steps(tmp_path, monkeypatch):
    (tmp_path / "checkpoints/step-00000001").mkdir(parents=True)
    (tmp_path / "checkpoints/step-00000001/state.json").write_text("[]")
    monkeypatch.setattr(resume, "run_steps", lambda given, train_tokens: None)
    monkeypatch.setattr(resume, "family_of", lambda objective: Mock())
    with pytest.raises(ConfigError, match="state.json .*: give train.steps instead"):
        resume._steps(tmp_path, Having(train=Having(minutes=1), objective=0), Having(train=0))
