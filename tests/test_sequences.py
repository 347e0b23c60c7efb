"""Every page's commands, at small lengths, in the order in which they stand, as its reader does."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest
from tokenizers import ByteLevelBPETokenizer

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.study.definition import find_study, load_study
from sublayer.tasks.registry import TASKS
from tests.commands.reviews import reviews, write_csv
from tests.documentation import PAGES, blocks, commands
from tests.interop.answering import model_for
from tests.interop.tiny import tiny
from tests.stories import write_stories
from tests.task_files import write_rte, write_squad, write_sst2

TRAINING = ("train", "compare")
_STEPS = 4
_LENGTHS = tuple(f"train.{name}=" for name in LENGTHS)
_MODEL = {"n_layers": 2, "n_decoder_layers": 2, "d_model": 32, "n_heads": 2, "d_head": 16}
_TUNED = {"n_layers": 1, "d_model": 32, "n_heads": 2}
_WIDTHS = {"d_ff": 48, "d_embed": 16}


def shrink(words):
    """Return a command's words with a length, a model and a batch that take a moment."""
    if words[0] == "demo":
        return ["compare", "demo", *_shortened([]), "--seeds", "1"]
    if words[0] == "finetune":
        return _tuned(words)
    if words[0] not in TRAINING:
        return list(words)
    names = list(takewhile(lambda word: "=" not in word and not word.startswith("-"), words[1:]))
    if len(names) > 1 and names[0].startswith("runs/"):
        return list(words)  # runs that have ended are compared as they are
    kept = [words[0], *names]
    is_study = words[0] == "compare" and find_study(words[1]) is not None
    settings = []
    options = []
    for word in words[len(kept) :]:
        is_value = options[-1:] in (["--vary"], ["--tune"])
        is_setting = "." in word.partition("=")[0] and "=" in word and not is_value
        (settings if is_setting else options).append(word)
    if is_study:
        few = [] if "--seeds" in options else ["--seeds", "1"]
        scale = options[options.index("--scale") + 1] if "--scale" in options else None
        if load_study(words[1], scale=scale).chain is not None:
            few += ["--finetunings", "1", f"finetune.train.steps={_STEPS}"]
        return [*kept, *_shortened(settings), "train.batch_sequences=4", *options, *few]
    if words[1].startswith("runs/") and "--resume" in options:
        others = [each for each in settings if not each.startswith(_LENGTHS)]
        return [*kept, *others, *([f"train.steps={2 * _STEPS}"] if settings else []), *options]
    if words[1].startswith("runs/") or any(each.startswith("init.run") for each in settings):
        return [*kept, *_shortened(settings), *options]
    loaded = load_recipe(words[1], settings)
    return [*kept, *_shortened(settings), *_small_model(loaded, settings), *options]


def _tuned(words):
    settings = [word for word in words[1:] if "=" in word]
    others = [word for word in words[1:] if "=" not in word]
    small = [] if others[0].startswith("runs/") else [f"model.{k}={v}" for k, v in _TUNED.items()]
    # A preset may have a warm-up of more steps than these.
    warmup = ["optimizer.warmup_steps=1"] if "--preset" in others else []
    return ["finetune", *others, *_shortened([*settings, *warmup]), *small]


def _shortened(settings):
    few = {"train.steps": _STEPS, "train.evaluate_steps": _STEPS, "train.checkpoint_steps": 1}
    few |= {"train.threads": 1, "train.precision": "float32", "train.evaluate_tokens": 1024}
    if any(each.startswith("optimizer.warmup_steps=") for each in settings):
        few["optimizer.warmup_steps"] = 1
    others = [each for each in settings if not each.startswith(_LENGTHS)]
    kept = [each for each in others if each.partition("=")[0] not in few]
    return [*kept, *(f"{key}={value}" for key, value in few.items())]


def _small_model(loaded, settings):
    recipe = loaded.recipe
    small = {}
    for name, value in {**_MODEL, **_WIDTHS}.items():
        current = getattr(recipe.model, name)
        if current is not None and current > value:
            small[f"model.{name}"] = value
    if (getattr(recipe.optimizer, "warmup_steps", None) or 0) > _STEPS:
        small["optimizer.warmup_steps"] = 1
    small["data.context"] = min(recipe.data.context, 32)
    if recipe.data.vocab_size is not None:
        small["data.vocab_size"] = min(recipe.data.vocab_size, 400)
    for name in BATCHES:
        if getattr(recipe.train, name) is not None:
            small[f"train.{name}"] = 4 if name == "batch_sequences" else 256
    given = {each.partition("=")[0] for each in settings}
    return [f"{key}={value}" for key, value in small.items() if key not in given]


NOT_HERE = {"sublayer import albert-tf downloads/albert_base": "needs a release of TensorFlow's"}
NOT_HERE |= {"sublayer import gpt1-numpy downloads/": "needs the arrays of GPT-1's release"}
NOT_HERE |= {"sublayer import fairseq downloads/": "needs a checkpoint of fairseq's"}
NOT_HERE |= {"sublayer compare char-depth": "trains up to 64 layers, each arm at four rates"}
NOT_HERE |= {"sublayer plan char-depth --scale cpu --measure": "takes real steps of those"}
NOT_HERE |= {"sublayer compare --on": "needs a cluster"}
NOT_HERE |= {"sublayer tokenize data/bpe.codes": "needs a published file of codes"}
"""Beginnings of commands that need what this project cannot make, or long, with what that is."""
_BOOK = "sublayer train gpt data.path=book.txt train.steps=200 --out runs/book"
BEFORE = {
    **dict.fromkeys(("data.md", "evaluating.md", "runs.md"), (_BOOK,)),
    "exchanging.md": ("sublayer train gpt train.steps=200 --out runs/first",),
    "finetuning.md": (
        "sublayer train albert-small data.path=letters train.steps=200 --out runs/albert-small",
    ),
    "generating.md": (_BOOK, "sublayer train t5-mini data.path=books --out runs/t5"),
    "inspecting.md": (
        _BOOK,
        "sublayer train albert-small data.path=letters model.share=none --out runs/apart",
        "sublayer train albert-small data.path=letters --out runs/shared",
    ),
}
"""What the reader of a page has done before, on the page that it names."""
_N_IDS = 256
_EVERY_LETTER = "The quick brown fox jumps over the lazy dog. She said nothing."
_SHOWN = [page for page in PAGES if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md")]


@pytest.fixture
def readers_folder(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of, and a cache of its own."""
    letters = tmp_path / "letters"
    letters.mkdir()
    documents = write_stories(letters)
    book = "\n\n".join("\n".join(document) for document in documents)
    (tmp_path / "book.txt").write_text(f"{book}\nIt was the end.\n")
    (tmp_path / "notes.txt").write_text(f"{book[: len(book) // 2]}\n")
    (tmp_path / "race").mkdir()
    for name, field in (("letters.jsonl", "text"), ("race/test.jsonl", "article")):
        lines = (json.dumps({field: " ".join(document)}) for document in documents)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    write_rte(tmp_path / "glue")
    write_sst2(tmp_path / "glue", {"train": 60, "dev": 20, "test": 8})
    write_squad(tmp_path / "squad")
    write_csv(tmp_path / "my.csv", reviews(60))
    write_csv(tmp_path / "new.csv", reviews(5, seed=1))
    shutil.copytree(letters, tmp_path / "books")
    for path in (tmp_path / "books").iterdir():
        path.write_text(f"{path.read_text()}{_EVERY_LETTER}\n")
    lines = [sentence for document in documents for sentence in document]
    for name, text in {"train.en": lines, "train.de": lines, "captions.en": lines[:5]}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    _save_downloads(tmp_path / "downloads")
    for page in PAGES:
        for block in blocks(page, "toml"):
            name = block.removeprefix("# ").partition("\n")[0]
            (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def _save_downloads(folder):
    names = {"gpt2": "gpt2", "bert": "bert-base-uncased", "albert": "albert-base-v2"}
    for kind, name in names.items():
        tiny(kind, vocab_size=_N_IDS).save(folder / name)
    export_huggingface(model_for("bert", TASKS["rte"]), folder / "bert-base-rte")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([], vocab_size=_N_IDS, show_progress=False)
    tokenizer.save(str(folder / "gpt2" / "tokenizer.json"))


@pytest.mark.pages
@pytest.mark.parametrize("page", _SHOWN, ids=lambda page: page.name)
@pytest.mark.usefixtures("readers_folder")
def test_the_commands_of_a_page_run_in_their_order(page, capsys):
    lines = [command.line for command in commands(page) if command.shown is None]
    for line in (*BEFORE.get(page.name, ()), *lines):
        if line.startswith(("sublayer ", "torchrun ")) and not line.startswith(tuple(NOT_HERE)):
            _run(line, capsys)


def _run(line, capsys):
    words = shlex.split(line)
    if words[0] == "sublayer" and not {"<", ">"} & set(words):
        code = cli.main(shrink(words[1:]))
        printed = capsys.readouterr()
        assert code == cli.DONE, f"{shlex.join(shrink(words[1:]))}\n{printed.out}\n{printed.err}"
        return
    streams = {}
    for sign in ("<", ">"):
        if sign in words:
            at = words.index(sign)
            streams[sign] = words[at + 1]
            del words[at : at + 2]
    if words[0] == "torchrun":
        at = words.index("sublayer")
        launcher = [sys.executable, "-m", "torch.distributed.run", *words[1 : at + 1]]
        command = [*launcher, *shrink(words[at + 1 :])]
    else:
        command = [sys.executable, "-m", "sublayer", *shrink(words[1:])]
    source = streams.get("<", os.devnull)
    with Path(source).open("rb") as given:
        ended = subprocess.run(command, stdin=given, capture_output=True, check=False)
    if ">" in streams:
        Path(streams[">"]).write_bytes(ended.stdout)
    said = f"{shlex.join(command)}\n{ended.stdout.decode()}\n{ended.stderr.decode()}"
    assert ended.returncode == cli.DONE, said


@pytest.mark.pages
@pytest.mark.usefixtures("readers_folder")
def test_the_examples_of_the_commands_run_in_an_order(capsys):
    examples = {
        name: str(import_module(f"sublayer.commands.{module}").EXAMPLE)
        for name, (module, _) in cli.COMMANDS.items()
        if name != "completion"  # which changes the shell of whoever runs this
    }
    first = ("train", "compare", "recipes", "fields", "plan", "tokenize", "import")
    _run("sublayer train multi30k-tiny data.source_path=train.en data.target_path=train.de", capsys)
    _run("sublayer train albert-small data.path=letters", capsys)
    _run("sublayer finetune albert-small my.csv --text review --label stars", capsys)
    for name in (*first, *(name for name in examples if name not in first)):
        _run(examples[name], capsys)


def test_what_cannot_be_run_here_is_on_a_page():
    lines = [command.line for page in _SHOWN for command in commands(page)]
    for beginning in NOT_HERE:
        assert any(line.startswith(beginning) for line in lines)
