"""Runs altered, and what a user has: one line of error, the checkpoint before, nothing lost."""

import os
import shutil
from collections import namedtuple
from contextlib import suppress
from itertools import product
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given

from sublayer.api.run import load
from sublayer.cli import main as cli
from sublayer.config.load import load_recipe
from sublayer.errors import Interrupted, SublayerError
from sublayer.files.storage import LOCK, temporary_path
from sublayer.runs.run import train_run
from sublayer.training.log import SilentProgress
from tests.alterations import alterations, copy, make_a_pipe, write_manifest_anew
from tests.breadth import TRIES_ALL, examples, rows
from tests.commands.conftest import SMALL
from tests.training.runs import SignalAt

_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
NAMES = """recipe.toml record.json model checkpoints metrics.jsonl tensorboard test.json lock run
    items.npz failure.json study.toml results.json report.html arms items.safetensors
    tokenizer.json manifest.json state.json config.json model.safetensors training.safetensors
    certificate.json step-00000002 sublayer-lock refused-model-1 partial-00000002 notes.txt out"""
FORMS = ["{}", ".{}", ".{}", ".{}.partial", "{}.partial", ".{}.tmp", "{}.tmp", "{}~", ".{}.lock"]
FORMS += [f".{{}}.partial-{os.getpid()}", f".{{}}-{os.getpid()}"]


def variant(name, number):
    is_form = number < len(FORMS) or not Path(name).name
    return FORMS[number % len(FORMS)].format(name) if is_form else temporary_path(Path(name)).name


LINKS = {"link": "elsewhere.txt", "dangling": "nowhere", "link to folder": "."}
KINDS = ["file", "empty", "folder", "filled", *LINKS]
COMMANDS = ["train", "resume", "resume", "refused", "unreadable", "tokenize"]
if TRIES_ALL:
    COMMANDS += ["compare", "import", "export"]
TINY = [*SMALL, "train.batch_sequences=2", "train.steps=2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("precious")
    (folder / "text.txt").write_text("The cat sat on the mat. Another dog ran.\n" * 60)
    assert cli.main(train(folder, folder / "run")) == 0
    shutil.copytree(folder / "run", folder / "killed")
    shutil.rmtree(folder / "killed" / "model")
    (folder / "killed" / "record.json").unlink()
    assert cli.main(["export", str(folder / "run"), str(folder / "gpt2")]) == 0
    return folder


def train(place, out):
    return ["train", "gpt", f"data.path={place / 'text.txt'}", *TINY, "--out", str(out)]


def command(name, place, out):
    text, tokenized = f"data.path={place}/text.txt", ["tokenize", "--path", f"{place}/text.txt"]
    arms = ["--vary", "model.ffn=gelu,relu", "--match", "none", "--seeds", "1"]
    words = {
        "train": train(place, out), "resume": [*train(place, out), "--resume"],
        "refused": [*train(place, out), "train.threads=0"],
        "unreadable": ["train", "gpt", f"data.path={place / 'none.txt'}", *TINY, "--out", str(out)],
        "compare": ["compare", "gpt", text, *TINY, *arms, "--out", str(out)],
        "import": ["import", "huggingface", str(place / "gpt2"), "--out", str(out / "model")],
        "export": ["export", str(place / "run"), str(out / "out")],
        "tokenize": [*tokenized, "--vocab-size", "260", "--out", str(out)],
    }  # fmt: skip
    return words[name]


def put(path, kind, elsewhere):
    if os.path.lexists(path) or (os.path.lexists(path.parent) and not path.parent.is_dir()):
        return
    if kind in ("folder", "filled"):
        path.mkdir()
        if kind == "filled":
            (path / "x").write_text(f"x in {path.name}")
    elif kind in LINKS:
        path.symlink_to(elsewhere / LINKS[kind])
    else:
        path.write_text("" if kind == "empty" else f"mine: {path.name}")


def inventory(*folders):
    found = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")] if os.path.lexists(folder) else []:
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else "folder"
            found[path] = str(path.readlink()) if path.is_symlink() else content
    return found


def nothing_is_lost(name, things, where, place, capsys):
    out, elsewhere = place / "target", place / "elsewhere"
    for folder in (out, elsewhere):
        shutil.rmtree(folder, ignore_errors=True)
    elsewhere.mkdir()
    (elsewhere / "elsewhere.txt").write_text("mine, elsewhere")
    out.mkdir()
    if name == "resume":
        shutil.copytree(place / "killed", out, dirs_exist_ok=True)
    own = inventory(out) if name == "resume" else {}
    for base, number, kind in things:
        inside = out / "checkpoints" if where == "checkpoints" and name == "resume" else out
        put(inside / variant(base, number), kind, elsewhere)
    before = {path: what for path, what in inventory(out, elsewhere).items() if path not in own}
    code, said = cli.main(command(name, place, out)), capsys.readouterr().err
    assert code in (cli.DONE, cli.MISTAKE) and "Traceback" not in said
    after = inventory(out, elsewhere)
    assert {path: after.get(path) for path in before} == before
    if code != cli.DONE:
        assert said.splitlines()[-1].startswith("error: ")
        assert name == "resume" or after == before | own, "a refused command leaves nothing"
        assert not os.path.lexists(out / LOCK) or out / LOCK in before


_THING = st.tuples(st.sampled_from(NAMES), st.integers(0, len(FORMS)), st.sampled_from(KINDS))
_EXAMPLE = {"name": st.sampled_from(COMMANDS), "things": st.lists(_THING, min_size=1, max_size=5)}
_EXAMPLE |= {"where": st.sampled_from(["top", "checkpoints"])}


@given(**_EXAMPLE)
@examples(125, suppress_health_check=_SHARED)
def test_nothing_that_a_user_has_is_lost(place, capsys, name, things, where):
    nothing_is_lost(name, things, where, place, capsys)


@pytest.mark.parametrize("name, kind", rows(product(["train", "resume", "unreadable"], KINDS), 7))
def test_a_lock_of_the_users_stays(place, capsys, name, kind):
    nothing_is_lost(name, [("sublayer-lock", 1, kind)], "top", place, capsys)


def test_a_refused_command_leaves_no_folder(place, capsys):
    for name in ("refused", "unreadable"):
        assert cli.main(command(name, place, place / "new" / "inner" / "run")) == cli.MISTAKE
        assert not (place / "new").exists()


SETTINGS = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "data.context": 16}
SETTINGS |= {"train.steps": 8, "train.batch_sequences": 2, "train.precision": "float32"}
SETTINGS |= {"train.threads": 1, "train.evaluate_steps": 3, "train.checkpoint_steps": 2}
SETTINGS |= {"train.evaluate_tokens": 64, "optimizer.warmup_steps": 2}
ASKING = ("resume", "evaluate", "generate", "load", "base")
READING_FIRST = (*ASKING[1:], "resume")
KEPT = ("recipe.toml", "record.json", "model")  # which a command never writes anew
Runs = namedtuple("Runs", "ended interrupted text altered")


@pytest.fixture(scope="module")
def runs(place):
    found = Runs(*(place / name for name in ("ended", "interrupted", "text.txt", "altered")))
    loaded = load_recipe("gpt", {**SETTINGS, "data.path": str(found.text)})
    train_run(loaded, found.ended, progress=SilentProgress())
    with suppress(Interrupted):
        train_run(loaded, found.interrupted, progress=SignalAt(7))
    return found


def words(command, runs):
    run = str(runs.altered)
    given = [f"{key}={value}" for key, value in SETTINGS.items()]
    return {
        "resume": ["train", "gpt", *given, f"data.path={runs.text}", "--out", run, "--resume"],
        "base": ["recipes", run],
        "evaluate": ["evaluate", run, "--split", "valid"],
        "generate": ["generate", run, "--prompt", "The ", "--tokens", "2"],
    }[command]


def files(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def contents(folder, names):
    paths = [folder / name for name in names]
    return {path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}


def tried(command, runs, capsys):
    """Run a command on the altered run: it ends well or in a line, and what is the user's stays."""
    if command == "load":
        with suppress(SublayerError):
            load(runs.altered)
        return
    code, said = cli.main(words(command, runs)), capsys.readouterr().err
    assert code in (cli.DONE, cli.MISTAKE, cli.FAILED) and "Traceback" not in said, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors == ([] if code == cli.DONE else said.splitlines()[-1:])


def alter_and_try(runs, capsys, number, alteration, commands, *, is_ended, is_listed=False):
    copy(runs.ended if is_ended else runs.interrupted, runs.altered)
    places = [runs.altered / name for name in ("mine.txt", ".mine", "checkpoints/mine.txt")]
    mine = {path: f"mine: {path.name}".encode() for path in places}
    for path, content in mine.items():
        path.write_bytes(content)
    names = [name for name in files(runs.altered) if "mine" not in name.name]
    altered = runs.altered / names[number % len(names)]
    alteration(altered)
    if is_listed:
        write_manifest_anew(altered)
    names = [path for path in files(runs.altered) if path.parts[0] in KEPT]
    if "step-00000007" in altered.parts:
        names.append(altered.relative_to(runs.altered))
    kept = contents(runs.altered, names)
    for command in commands:
        tried(command, runs, capsys)
        assert {path: path.read_bytes() for path in mine} == mine
    assert kept <= contents(runs.altered, files(runs.altered))


_ALTERED = {"number": st.integers(0, 10**6), "alteration": alterations()}
_ALTERED |= {"commands": st.permutations(ASKING).map(lambda names: tuple(names[:2]))}
_ALTERED |= {"is_ended": st.booleans(), "is_listed": st.booleans()}


@given(**_ALTERED)
@examples(60, suppress_health_check=_SHARED)
def test_an_altered_run_is_one_line_of_error_or_goes_on(runs, capsys, **example):
    alter_and_try(runs, capsys, **example)


@pytest.mark.parametrize("is_ended", rows([True, False], 1))
def test_no_file_of_a_run_that_became_a_pipe_is_waited_for(runs, capsys, is_ended):
    for number in range(len(files(runs.ended if is_ended else runs.interrupted))):
        alter_and_try(runs, capsys, number, make_a_pipe, READING_FIRST, is_ended=is_ended)
