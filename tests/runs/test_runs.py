"""Folders of runs, headers, items, starts; inputs of resumed runs; tasks, and watched texts."""

import io
import json
import random
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

import sublayer
from sublayer.api.comparing import compare
from sublayer.api.run import load
from sublayer.cli import main as cli
from sublayer.config.data import DataConfig
from sublayer.config.finetune import load_finetune
from sublayer.config.load import load_recipe
from sublayer.data.prepare import prepare
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted
from sublayer.evaluation.items import ITEMS, Items, ItemTable, read_items, write_items
from sublayer.files.arrays import dump_arrays, dump_npz
from sublayer.runs.finetuning import finetune_seeds
from sublayer.runs.folder import SCORES, RunFolder, check_start, default_folder
from sublayer.runs.run import describe_small_test, text_rows, train_run
from sublayer.runs.texts import own_split
from sublayer.training.log import METRICS, SilentProgress, read_metrics
from tests.evaluation.test_likelihood import write_tasks
from tests.made import KINDS, TINY, TRANSLATION
from tests.task_files import write_sst2, write_stsb
from tests.training.runs import Notes, SignalAt

pytestmark = pytest.mark.usefixtures("own_cache")


def test_resuming_without_a_folder_goes_on_with_the_last_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = load_recipe("gpt")
    assert default_folder(loaded, resume=True).as_posix() == "runs/gpt"
    for expected in ("gpt", "gpt.2", "gpt.3"):
        folder = default_folder(loaded, resume=False)
        folder.mkdir(parents=True)
        assert default_folder(loaded, resume=True) == folder
        assert folder.as_posix() == f"runs/{expected}"
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="name it with --out"):
        default_folder(loaded, resume=False)


def test_runs_that_an_earlier_version_numbered_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gpt", "gpt-2"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "recipe.toml").touch()
    for made, found in (("gpt-2", "gpt-2"), ("gpt-3", "gpt-2"), ("gpt.2", "gpt.2")):
        Path("runs", made).mkdir(exist_ok=True)
        assert default_folder(load_recipe("gpt"), resume=True).as_posix() == f"runs/{found}"


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path):
    with pytest.raises(KeyError), RunFolder(tmp_path / "run").held():
        raise KeyError
    assert not (tmp_path / "run").exists()
    with RunFolder(tmp_path / "run").held():
        (tmp_path / "run" / "recipe.toml").write_text("")
    assert (tmp_path / "run" / "recipe.toml").exists()
    with pytest.raises(CheckpointError, match=r"is not a run, as it has no recipe\.toml"):
        RunFolder(tmp_path).check_recipe(load_recipe("gpt").recipe)


PAIRS = {"source_language": "en", "target_language": "de", "tokenizer": "word-bpe"}
PAIRS |= {"source_path": "train.en", "target_path": "train.de", "vocab_size": 60}
VALID = {"valid_source_path": "valid.en", "valid_target_path": "valid.de"}


def rows_of(data, recipe):
    """The rows of a text; what is said of a test split stands with the row above it."""
    config, found = DataConfig.model_validate(data), {}
    loaded = load_recipe(recipe).recipe.model_copy(update={"data": config})
    for name, value in text_rows(loaded, prepare(config)):
        name = name or next(reversed(found))
        found[name] = f"{found.get(name, '')} {value}".strip()
    return found


def test_a_header_names_the_files_of_each_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, n_pairs in (("train", 200), ("valid", 30), ("test", 40)):
        for language in ("en", "de"):
            lines = (f"a cat sat on mat {n:03}\n" for n in range(n_pairs))
            Path(f"{name}.{language}").write_text("".join(lines))
    given = "train.en and train.de: 200 pairs, en to de, 8,000 bytes"
    valid = "valid.en and valid.de: 30 pairs, 1,200 bytes"
    test = "test.en and test.de: 40 pairs, 1,600 bytes"
    rows = rows_of({**PAIRS, **VALID}, "multi30k-tiny")
    assert (rows["text"], rows["validation"]) == (given, valid)
    assert rows["split"] == "190 / 10 pairs to train and test on"
    test_paths = {"test_source_path": "test.en", "test_target_path": "test.de"}
    rows = rows_of({**PAIRS, **VALID, **test_paths}, "multi30k-tiny")
    assert (rows["text"], rows["validation"], rows["test"]) == (given, valid, test)
    assert "split" not in rows
    Path("book.txt").write_text("the cat sat on the mat. " * 100)
    Path("other.txt").write_text("the dog ran. " * 100)
    rows = rows_of({"path": "book.txt", "valid_path": "other.txt"}, "gpt")
    assert rows["text"] == "book.txt: 1 document, 2,400 bytes"
    assert rows["split"].startswith("2,280 / 120 bytes to train and test on the test split is part")
    assert rows["validation"] == "other.txt: 1 document, 1,300 bytes"


@pytest.mark.parametrize("n_documents, is_cut, read_pairs, expected", [
    (1, True, None, "part of one document"), (9, False, None, "9 documents"),
    (5, False, list, "5 pairs of texts"), (10, False, None, None),
])  # fmt: skip
def test_a_small_test_split_is_noted(n_documents, is_cut, read_pairs, expected):
    starts = {"document_starts": range(n_documents), "is_cut": is_cut, "read_pairs": read_pairs}
    said = describe_small_test(SimpleNamespace(test=SimpleNamespace(**starts)))
    assert said is expected or expected in said


DIGEST = "ab" * 32


def test_items_are_read_as_they_were_written(tmp_path):
    assert read_items(tmp_path) is None
    columns = {"nats": np.array([1.25, 1 / 3, 7.0]), "tokens": np.array([3, 70_000, 5])}
    windows = ItemTable("a window", DIGEST, columns, documents=np.array([0, 0, 2]))
    counts = np.arange(20, dtype=np.int64).reshape(2, 10)
    lines = ItemTable("a line", DIGEST, {"bleu": counts}, None)
    items = Items("test", "cd" * 32, {"windows": windows, "lines": lines})
    write_items(tmp_path, items, {"loss": "windows", "sop_accuracy": "sop_pairs"})
    found = read_items(tmp_path)
    assert (found.split, found.sha256) == (items.split, items.sha256)
    assert list(found.tables) == list(items.tables)
    for read, table in zip(found.tables.values(), items.tables.values(), strict=True):
        assert (read.unit, read.digest, read.n_items) == (table.unit, table.digest, table.n_items)
        assert np.array_equal(read.documents, table.documents)
        for column, values in table.columns.items():
            assert np.array_equal(read.columns[column], values)
    data = (tmp_path / ITEMS).read_bytes()
    write_items(tmp_path, items, {"loss": "windows", "sop_accuracy": "sop_pairs"})
    assert (tmp_path / ITEMS).read_bytes() == data
    with np.load(tmp_path / ITEMS) as file:  # as a user does
        assert file["windows/nats"].tolist() == columns["nats"].tolist()
        assert file["lines/bleu"].dtype == np.uint8
        header = json.loads(str(file["header"]))
    assert header["metrics"] == {"loss": "windows"}
    earlier = {f"windows/{name}": values for name, values in columns.items()}
    earlier |= {"windows/documents": windows.documents, "lines/bleu": counts}
    (tmp_path / "items.safetensors").write_bytes(dump_arrays(earlier, header))
    (tmp_path / ITEMS).unlink()
    assert read_items(tmp_path).tables["lines"].columns["bleu"].tolist() == counts.tolist()


def file_of(arrays=None, *, version=1, columns=("nats",)):
    table = {"unit": "a window", "digest": DIGEST, "n_items": 2, "columns": list(columns)}
    tables = {"w": {**table, "has_documents": True}}
    header = {"version": version, "split": "test", "sha256": "", "metrics": {}, "tables": tables}
    own = {"w/nats": np.array([1.0, 2.0]), "w/documents": np.array([0, 1])}
    return dump_npz({**own, **(arrays or {})}, header)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("data, said", [
    ((1 << 60).to_bytes(8, "little") + b"{}", "header too large"), (b"", "is damaged"),
    (file_of()[:-1], "is damaged"), (save({"w/nats": np.ones(2)}), "has no header"),
    (npz(a=np.ones(2)), "has no header"), (npz(header=np.ones(2)), "is not JSON"),
    (npz(header=np.array([{}], dtype=object)), "is damaged"), (file_of()[:200], "is damaged"),
    (npz(header=np.array("{}"), text=np.array("a")), "'text' is not an array of finite numbers"),
    (file_of(version=2), "version 2"), (file_of({"x\ny": np.ones(2)}), "belongs to no table"),
    (file_of({"w/nats": np.array([1.0, np.nan])}), "is not an array of finite numbers"),
    (file_of({"w/nats": np.ones((2, 1, 1))}), "do not match its header"),
    (file_of(columns=["nats", "tokens"]), "do not match its header"),
    (file_of({"w/documents": np.array([-1, 0])}), "do not match its header"),
    (file_of({"w/documents": np.ones(2)}), "do not match its header"),
], ids=range(16))  # fmt: skip
def test_hostile_files_are_refused_in_a_line(tmp_path, data, said):
    (tmp_path / ITEMS).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"^.*{ITEMS}.*{re.escape(said)}.*$"):
        read_items(tmp_path)


def write_recipe(folder, text):
    Path(folder, "recipe.toml").write_text(text)
    return str(folder)


@pytest.fixture
def book(tmp_path):
    text = 'derived = []\nmodel = { n_layers = 2, d_model = 32 }\n[data]\npath = "b"\n'
    return write_recipe(tmp_path, text)


@pytest.mark.parametrize("fields, named", [
    ({"model.ffn": "swiglu", "model.norm_eps": 1e-3}, ["ffn"]),
    ({"model.n_layers": 3, "model.bias": False}, ["n_layers", "bias"]),
    ({"model.positions": "learned-per-layer"}, ["positions"]),
])  # fmt: skip
def test_other_weights_are_refused_by_field_with_a_command_that_works(book, fields, named):
    with pytest.raises(ConfigError) as refused:
        check_start(load_recipe("gpt", {"init.run": book, "train.steps": 5, **fields}))
    message = str(refused.value)
    assert all(f"model.{name} = " in message for name in named)
    assert message.count(" where ") == len(named)
    program, verb, source, *settings = shlex.split(message.split("`")[1])
    assert (program, verb, source) == ("sublayer", "train", "gpt")
    check_start(load_recipe(source, settings))
    assert "train.steps=5" in settings
    same = {"model.head": "transform", "model.label_outputs": 3, "model.dropout": 0.2}
    for each in (same, {"model.ffn": "relu"}, {"model.n_layers": 4, "init.layers": 2}):
        check_start(load_recipe("gpt", {"init.run": book, **each}))


def test_other_positions_are_refused_with_the_context_that_is_too_long_for_them(tmp_path):
    asked = {"init.run": str(tmp_path), "model.max_len": 64, "data.context": 48, "train.steps": 5}
    text = "derived = []\n[data]\ncontext = 32\n[model]\nn_layers = 2\nmax_len = 32\n"
    write_recipe(tmp_path, text)
    with pytest.raises(ConfigError, match=r"model\.max_len = 64 where .* has 32") as refused:
        check_start(load_recipe("gpt", asked))
    *_, kept, steps = shlex.split(str(refused.value).split("`")[1])
    assert (kept, steps) == (f"init.run={tmp_path}", "train.steps=5")
    write_recipe(tmp_path, f'{text}positions = "rotary"\n')
    check_start(load_recipe("gpt", asked))
    write_recipe(tmp_path, "model.max_len = 32\n[data]\ncontext = 32\ntokenizer = 'bytes'\n")
    loaded = load_finetune(str(tmp_path), ["rte"], "glue", {"data.context": 48}).loaded
    with pytest.raises(ConfigError, match="leave out data.context") as refused:
        check_start(loaded, "finetune")
    assert "`" not in str(refused.value)


def test_weights_that_were_imported_have_a_rate_of_their_own_and_a_preset_shrinks(tmp_path):
    folder = tmp_path / "imported"
    folder.mkdir()
    model = {"kind": "encoder", "n_layers": 2, "segments": "both"}
    (folder / "config.json").write_text(json.dumps({"model": model}))
    text = 'derived = []\n{}[model]\nkind = "encoder"\nsegments = "both"\n'
    text += '[objective]\nkind = "masked"\n[data]\ntokenizer = "wordpiece"\n'

    def rate(source):
        found = load_finetune(str(source), ["rte"], "glue")
        assert found.loaded.origins["optimizer.lr"] == "preset default"
        return found.loaded.recipe.optimizer.lr

    imported = rate(folder)
    for init, expected in ((f'[init]\nrun = "{folder}"\n', imported), ("", 2e-4)):
        write_recipe(tmp_path, text.format(init))
        assert rate(tmp_path) == expected
    assert imported < 2e-4
    short = load_finetune(str(folder), ["rte"], "glue", {"train.steps": 4}, preset="albert")
    assert short.loaded.recipe.optimizer.warmup_steps == 1
    assert any("200 of preset albert" in note for note in short.loaded.notes)
    assert "optimizer.warmup_steps" not in [each.key for each in short.figures()]


def test_more_first_blocks_than_a_stack_has_are_refused(book):
    model = '[model]\nkind = "encoder-decoder"\nn_layers = 3\nn_decoder_layers = 2\n'
    write_recipe(book, f'{model}[objective]\nkind = "span"\n[data]\ntokenizer = "unigram"\n')

    def check(*settings):
        check_start(load_recipe("t5-mini", [f"init.run={book}", *settings]))

    words = f"3 is more than the 2 blocks of the decoder of {book}"
    with pytest.raises(ConfigError, match=re.escape(words)):
        check("init.layers=3")
    with pytest.raises(ConfigError, match="2 is more than the 1 block of the encoder of the rec"):
        check("init.layers=2", "model.n_layers=1")
    check("init.layers=2")
    check("init.layers=1", "model.n_layers=1", "model.n_decoder_layers=4")


def test_a_recipe_file_is_told_which_settings_to_add(book):
    recipe = Path(book, "wide.toml")
    recipe.write_text(f'extends = "gpt"\n[model]\nd_model = 64\n[init]\nrun = "{book}"\n')
    with pytest.raises(ConfigError, match="leave out model.d_model, which keeps the values of"):
        check_start(load_recipe(str(recipe)))
    check_start(load_recipe(str(recipe), {"model.d_model": 32}))


SMALL = {"data.tokenizer": "wordpiece", "data.vocab_size": 110, "data.context": 32}
SMALL |= {"model.n_layers": 1, "model.d_model": 32, "model.n_heads": 2, "model.d_ff": 64}
SMALL |= {"model.d_embed": 32, "optimizer.kind": "adamw", "optimizer.lr": 0.01}
SMALL |= {"train.epochs": 8, "train.batch_sequences": 16}
SMALL |= {"train.precision": "float32", "train.threads": 1}


@pytest.fixture(scope="module")
def glue(tmp_path_factory, own_cache):
    sizes = {"train": 120, "dev": 40}
    return write_stsb(write_sst2(tmp_path_factory.mktemp("glue"), sizes), sizes)


def finetuned(glue, out, task="sst2", n_seeds=None, **settings):
    told = {**SMALL, **{name.replace("__", "."): value for name, value in settings.items()}}
    loaded = load_finetune("albert-small", [task], str(glue), told).loaded
    return finetune_seeds(loaded, out, n_seeds, resume=False, device="cpu")


@pytest.mark.parametrize("task, least", [("sst2", 0.9), ("stsb", 0.8)])
def test_a_run_of_a_far_too_high_rate_has_collapsed(glue, tmp_path, task, least):
    [result] = finetuned(glue, tmp_path / "run", task)
    [report] = result.reports
    assert report.score.value > least and not result.has_collapsed
    assert (report.split, report.score.n_examples) == ("dev", 40)
    [result] = finetuned(glue, tmp_path / "high", task, optimizer__lr=10.0, train__epochs=2)
    [report] = result.reports
    assert "to all examples" in report.collapse or "is not below" in report.collapse
    [kept] = json.loads((tmp_path / "high" / SCORES).read_text())["tasks"]
    assert result.has_collapsed and kept["collapse"] == report.collapse


def test_seeds_share_the_held_out_rows_and_one_development_set(glue, tmp_path):
    results = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    assert [each.seed for each in results] == [0, 1]
    one, other = (each.record["data"]["checksums"] for each in results)
    paths = [each.folder / "model" / "model.safetensors" for each in results]
    weights = [path.read_bytes() for path in paths]
    assert one == other and weights[0] != weights[1]
    scores = [json.loads((each.folder / SCORES).read_text()) for each in results]
    assert scores[0]["tasks"][0]["baselines"] == scores[1]["tasks"][0]["baselines"]
    again = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    assert [each.score for each in again] == [each.score for each in results]
    assert [path.read_bytes() for path in paths] == weights


WATCHED = {**TINY, "train.steps": 6, "train.evaluate_steps": 2, "train.evaluate_tokens": 256}


def test_every_evaluation_asks_and_nothing_else_changes(tmp_path, capsys):
    write_tasks(tmp_path / "tasks")
    (tmp_path / "text.txt").write_text("\n".join(f"line {n} of a small text" for n in range(300)))
    tasks = ", ".join(f'{name} = "{tmp_path / "tasks"}"' for name in ("sst2", "winograd"))
    words = [f"data.path={tmp_path / 'text.txt'}", *(f"{key}={WATCHED[key]}" for key in WATCHED)]
    for name, more in (("plain", []), ("probed", [f"train.probes={{ {tasks} }}"])):
        assert cli.main(["train", "gpt", *words, *more, "--out", str(tmp_path / name)]) == 0
    assert "probes: SST-2 " in capsys.readouterr().err
    metrics = read_metrics(tmp_path / "probed" / METRICS)
    lines = [each for each in metrics if each["kind"] == "valid"]
    assert [each["step"] for each in lines] == [2, 4, 6]
    assert all(0.0 <= each["probes/sst2"] <= 1.0 for each in lines)
    record = json.loads((tmp_path / "probed" / "record.json").read_text())
    probe = record["probes"]["sst2"]
    assert (probe["examples"], probe["chance_error"]) == (4, pytest.approx(0.25))
    assert "probes/winograd" in record["valid"]
    plain, probed = (tmp_path / name / "model/model.safetensors" for name in ("plain", "probed"))
    assert plain.read_bytes() == probed.read_bytes()


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "book.txt").write_text("The cat sat on the mat, and slept. " * 40)
    (tmp_path / "letters.txt").write_text("Another text, of which nothing is learned. " * 4)
    watched = {"data.watch": {"letters": str(tmp_path / "letters.txt")}, "data.split": "100/0/0"}
    own = {"data.path": str(tmp_path / "book.txt"), "train.best_by": "last"}
    return {**WATCHED, **watched, **own}


def test_watched_texts_are_scored_and_the_last_model_is_kept(tmp_path, texts, capfd):
    run = tmp_path / "run"
    record = train_run(load_recipe("gpt", texts), run, progress=SilentProgress())
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "valid"]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all("letters/loss" in line and "loss" not in line for line in lines)
    valid, data = record["valid"], record["data"]
    assert (valid["step"], valid["letters/loss"]) == (6, lines[-1]["letters/loss"])
    assert data["watched"]["letters"]["documents"] == 1 and "valid" not in data
    assert "step 2/6  letters: loss" in capfd.readouterr().err
    assert RunFolder(run).record() == json.loads((run / "record.json").read_text())
    with pytest.raises(ConfigError, match="no test split"):
        own_split(run, RunFolder(run).recipe(), load(run), "test")
    assert train_run(load_recipe("gpt", texts), run, resume=True) == record
    assert load_recipe(run).recipe.data.watch == texts["data.watch"]


def test_a_comparison_needs_a_test_split_and_tuning_a_validation_split(tmp_path, texts):
    asked = {"vary": ["model.ffn=gelu,relu"], "out": tmp_path / "study"}
    with pytest.raises(ConfigError, match="needs a test split"):
        compare("gpt", texts, **asked)
    asked["tune"] = ["optimizer.weight_decay=0.1,0.01"]
    with pytest.raises(ConfigError, match="^tune needs a valid split"):
        compare("gpt", {**texts, "data.split": "90/0/10"}, **asked)


SHORT = {**TINY, "train.steps": 6}
KINDS_OF_FILES = ["causal", "masked", "translation", "pair", "text", "questions"]
FILES = ["validation", "watched", "glob", "sides", "vocabulary"]
CHANGED = "began with other data: .* was .*SHA-256 .* and is .*SHA-256"
LINES = "".join(f"the cat sat on mat {number}\n" for number in range(90))


def alter(draw, path):
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


@pytest.mark.parametrize("kind", [*KINDS_OF_FILES, *FILES])
def test_other_inputs_are_refused_and_those_of_before_go_on(workshop, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    draw = random.Random(kind)
    settings, files = case(kind, tmp_path, workshop)
    run = tmp_path / "run"
    loaded, before = stopped(settings, run), {path: path.read_bytes() for path in files}
    for path in files:
        alter(draw, path)
    with pytest.raises(DataError, match=CHANGED) as refused:
        train_run(loaded, run, resume=True)
    assert f"init.run={run}" in str(refused.value)
    for path, content in before.items():
        path.write_bytes(content)
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


def test_an_edited_recipe_is_refused_by_field_and_a_start_matters_only_at_first(tmp_path):
    (tmp_path / "one.txt").write_text(LINES)
    base, run, new = tmp_path / "base", tmp_path / "run", tmp_path / "new"
    stopped({"data.path": str(tmp_path / "one.txt")}, base)
    loaded = stopped({"data.path": str(tmp_path / "one.txt"), "init.run": str(base)}, run)
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("lr = 0.01", "lr = 0.02"))
    with pytest.raises(ConfigError, match=r"began with optimizer.lr = 0.01, .* now has 0.02"):
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
    given = {**SHORT, "data.path": tmp_path / "one.txt"}
    words = [f"{key}={value}" for key, value in given.items()]
    missing = ["--out", str(tmp_path / "missing"), "--resume"]
    assert cli.main(["train", "gpt", *words, *missing]) == 2
    assert "there is no run" in capsys.readouterr().err and not (tmp_path / "missing").exists()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="there is no run"):
        sublayer.train("gpt", words, resume=True)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert cli.main(["train", "gpt", *words, *missing]) == 0
    assert "one begins there, at step 0" in capsys.readouterr().err
