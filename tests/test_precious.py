"""What a user has in a folder stays, to the byte, whatever a command does there or refuses."""

import os
import shutil
from itertools import product
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given

from sublayer import cli
from sublayer.files.storage import temporary_path
from sublayer.system.lock import LOCK
from tests.breadth import TRIES_ALL, examples, rows
from tests.commands.conftest import SMALL

NAMES = [
    *("recipe.toml", "record.json", "model", "checkpoints", "metrics.jsonl", "tensorboard"),
    *("test.json", "items.safetensors", "failure.json", "study.toml", "results.json"),
    *("items.safetensors.xz", "report.html", "tokenizer.json", "arms", "manifest.json"),
    *("state.json", "lock", "config.json", "model.safetensors", "training.safetensors"),
    *("certificate.json", "step-00000002", "run", "out", "sublayer-lock", "refused-model-1"),
    *("partial-00000002", "notes.txt"),
]
FORMS = [
    *("{}", ".{}", ".{}", ".{}.partial", "{}.partial", ".{}.tmp", "{}.tmp", "{}~"),
    *(f".{{}}.partial-{os.getpid()}", f".{{}}-{os.getpid()}", ".{}.lock"),
]


def variant(name, number):
    return FORMS[number].format(name) if number < len(FORMS) else temporary_path(Path(name)).name


LINKS = {"link": "elsewhere.txt", "dangling": "nowhere", "link to folder": "."}
KINDS = ["file", "empty", "folder", "filled", *LINKS]
COMMANDS = ["train", "resume", "resume", "refused", "unreadable", "tokenize"]
if TRIES_ALL:
    COMMANDS += ["compare", "import", "export"]
TINY = [*SMALL, "train.batch_sequences=2", "train.steps=2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precious")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        text = "The cat sat on the mat. Another dog ran over the fields.\n" * 40
        (folder / "text.txt").write_text(text)
        assert cli.main(train(folder, folder / "run")) == 0
        shutil.copytree(folder / "run", folder / "killed")
        shutil.rmtree(folder / "killed" / "model")
        (folder / "killed" / "record.json").unlink()
        assert cli.main(["export", str(folder / "run"), str(folder / "gpt2")]) == 0
        yield folder


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
@examples(125, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_nothing_that_a_user_has_is_lost(place, capsys, name, things, where):
    nothing_is_lost(name, things, where, place, capsys)


@pytest.mark.parametrize("name, kind", rows(product(["train", "resume", "unreadable"], KINDS), 7))
def test_a_lock_of_the_users_stays(place, capsys, name, kind):
    nothing_is_lost(name, [("sublayer-lock", 1, kind)], "top", place, capsys)


def test_a_refused_command_leaves_no_folder(place, capsys):
    for name in ("refused", "unreadable"):
        assert cli.main(command(name, place, place / "new" / "inner" / "run")) == cli.MISTAKE
        assert not (place / "new").exists()
