"""A run, a fine-tuning and a study go on only with what they began with."""

import random
import shutil

import pytest

import sublayer
from sublayer.cli import main
from sublayer.config.layering.layers import load_recipe
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError, Interrupted
from sublayer.runs.run import train_run
from tests.made import KINDS, TINY, TRANSLATION
from tests.training.runs import Notes, SignalAt

SHORT = {**TINY, "train.steps": 6}
CHANGED = "began with other data: .* was .*SHA-256 .* and is .*SHA-256"
KINDS_AND_FILES = ["causal", "masked", "translation", "pair", "text", "questions", "validation"]
KINDS_AND_FILES += ["watched", "glob", "sides", "vocabulary"]
LINES = "".join(f"the cat sat on mat {number}\n" for number in range(90))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


def alter(draw, path):
    """Change a file a little, as files change: it grows, is cut, or put in another order."""
    text = path.read_text()
    if path.suffix == ".json":
        path.write_text(text.replace("lovely", "superb").replace('"c"', '"~"'))
        return
    unit = "\n" if text.count("\n") > 3 else " "
    first, *parts = text.removesuffix("\n").split(unit)
    place = draw.randrange(1, len(parts))
    ways = [[*parts, parts[place]], parts[:-1], [*parts[place:], *parts[:place]]]
    path.write_text(unit.join([first, *draw.choice(ways)]) + "\n")


def stopped(settings, folder):
    loaded = load_recipe("gpt", {**SHORT, **settings})
    with pytest.raises(Interrupted):
        train_run(loaded, folder, progress=SignalAt(5))
    return loaded


def case(kind, here, workshop):
    """Write the inputs of a run; return its settings, and the files that are changed."""
    one, two = here / "one.txt", here / "two.txt"
    for path in (one, two):
        path.write_text(LINES.replace("mat", path.stem))
    if kind in KINDS:
        source = workshop.path(KINDS[kind])
        own = here / source.name
        shutil.copytree(source, own) if source.is_dir() else shutil.copy(source, own)
        files = [path for path in own.rglob("*") if "train" in path.name or own.name == "stories"]
        return {**KINDS[kind], "data.path": str(own)}, [own] if own.is_file() else files
    if kind == "validation":
        return {"data.path": [str(one)], "data.valid_path": str(two)}, [two]
    if kind == "watched":
        return {"data.path": str(one), "data.watch": {"mine": str(two)}}, [two]
    if kind == "glob":
        (here / "three.txt").write_text(LINES)
        return {"data.path": str(here / "*.txt")}, [two]
    if kind == "sides":
        return {**TRANSLATION, "data.source_path": str(one), "data.target_path": str(two)}, [two]
    own = here / "own.json"
    train_tokenizer("characters", [LINES.encode()]).save(own)
    return {"data.path": str(one), "data.tokenizer": str(own)}, [own]


@pytest.mark.parametrize("kind", KINDS_AND_FILES)
def test_other_inputs_are_refused_and_those_of_before_go_on(workshop, tmp_path, kind):
    draw = random.Random(kind)
    settings, files = case(kind, tmp_path, workshop)
    run = tmp_path / "run"
    loaded = stopped(settings, run)
    before = {path: path.read_bytes() for path in files}
    for path in files:
        alter(draw, path)
    with pytest.raises(DataError, match=CHANGED) as refused:
        train_run(loaded, run, resume=True)
    assert f"init.run={run}" in str(refused.value)
    for path, content in before.items():
        path.write_bytes(content)
    # Nothing is trained anew: the tokenizer is the checkpoint's.
    shutil.rmtree(tmp_path / "cache" / "tokenizers", ignore_errors=True)
    assert train_run(loaded, run, resume=True)["step"] == 6
    assert not (tmp_path / "cache" / "tokenizers").exists()


def test_documents_that_end_elsewhere_are_other_data_though_no_byte_is(tmp_path):
    lines, path = LINES.splitlines(keepends=True), tmp_path / "text"
    path.mkdir()
    settings = {"data.path": str(path), "data.split": "100/0/0", "train.best_by": "last"}

    def write(n):
        (path / "1.txt").write_text("".join(lines[:n]))
        (path / "2.txt").write_text("".join(lines[n:]))

    write(40)
    loaded = stopped(settings, tmp_path / "run")
    write(41)
    with pytest.raises(DataError, match="began with other data"):
        train_run(loaded, tmp_path / "run", resume=True)


def test_a_recipe_that_was_edited_in_a_run_is_refused_by_field_and_a_start_only_matters_at_first(
    tmp_path,
):
    (tmp_path / "one.txt").write_text(LINES)
    base, run, new = tmp_path / "base", tmp_path / "run", tmp_path / "new"
    stopped({"data.path": str(tmp_path / "one.txt")}, base)
    loaded = stopped({"data.path": str(tmp_path / "one.txt"), "init.run": str(base)}, run)
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("lr = 0.01", "lr = 0.02"))
    with pytest.raises(ConfigError, match=r"began with optimizer.lr = 0.01, .* says 0.02"):
        train_run(load_recipe(run), run, resume=True)
    (run / "recipe.toml").write_text(recipe)
    shutil.copytree(run, new)
    shutil.rmtree(new / "checkpoints")
    train_run(load_recipe(base), base, resume=True)
    with pytest.raises(DataError, match=r"the model of init.run = .* give another --out"):
        train_run(loaded, new, resume=True)
    notes = Notes()
    assert train_run(loaded, run, resume=True, progress=notes)["step"] == 6
    assert any("has other weights now" in text for text in notes.texts)


def test_a_run_of_before_goes_on_and_says_what_could_not_be_compared(tmp_path):
    path, run, notes = tmp_path / "one.txt", tmp_path / "run", Notes()
    path.write_text(LINES)
    loaded = stopped({"data.path": str(path)}, run)
    (run / "inputs.json").unlink()
    train_run(loaded, run, resume=True, progress=notes)
    assert any("train, valid, test, recipe could not be compared" in text for text in notes.texts)
    (run / "inputs.json").unlink()
    alter(random.Random(0), path)
    longer = load_recipe(run, {"train.steps": 8})
    with pytest.raises(DataError, match=CHANGED):  # by the record's checksums
        train_run(longer, run, resume=True)


def test_a_missing_run_is_not_resumed_but_under_a_launcher(tmp_path, monkeypatch, capsys):
    (tmp_path / "one.txt").write_text(LINES)
    words = [
        f"{key}={value}" for key, value in {**SHORT, "data.path": tmp_path / "one.txt"}.items()
    ]
    missing = ["--out", str(tmp_path / "missing"), "--resume"]
    assert main(["train", "gpt", *words, *missing]) == 2
    assert "there is no run" in capsys.readouterr().err and not (tmp_path / "missing").exists()
    for folder in (tmp_path / "missing", None):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="there is no run"):
            sublayer.train("gpt", words, out=folder, resume=True)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert main(["train", "gpt", *words, *missing]) == 0
    assert "one begins there, at step 0" in capsys.readouterr().err
