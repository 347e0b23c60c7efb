"""Lists, tokens, forecasts; ``inspect``, ``import``, ``export``, and commands named as next."""

import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from shutil import disk_usage

import pytest

from sublayer.api.recipes import json_schema
from sublayer.api.run import load
from sublayer.cli.training import after_import, after_training
from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import keys
from sublayer.config.resolve import resolve_model
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.estimate.cluster import DEVICES
from sublayer.model.model_folder import save_model, spec_files
from sublayer.model.transformer import build
from sublayer.tasks.registry import TASKS
from tests.commands.results import unwrapped
from tests.interop.answering import model_for
from tests.interop.test_gpt1 import draw as draw_arrays
from tests.interop.test_gpt1 import save as save_arrays


@pytest.mark.parametrize("asked, found", [
    ("d_ff", ["model.d_ff"]), ("kind", ["model.kind", "objective.kind", "optimizer.kind"]),
    ("learning rate", ["optimizer.lr"]), ("SwiGLU", ["model.ffn"]), ("train", list(keys("train"))),
])  # fmt: skip
def test_fields_are_found_by_name_by_choice_and_by_description(sublayer, asked, found):
    listed = sublayer("fields", asked, "--json").answer()["fields"]
    assert [f"{field['table']}.{field['name']}" for field in listed][: len(found)] == found


def test_the_schema_of_all_fields_is_printed(sublayer):
    assert json.loads(sublayer("fields", "--schema").shown()) == json_schema()
    assert sublayer("fields", "--schema", "--json").answer() == json_schema()


def test_rows_that_are_left_out_are_named_with_their_place(sublayer, here, trained):
    files = {"SST-2/train.tsv": "sentence\tlabel\nfine\t1\nshort\nbad\t0\nalso short\n?\t-1"}
    files |= {"SST-2/test.tsv": "index\tsentence\n0\tfine\n1"}
    files |= {"RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tperhaps"}
    for name, text in files.items():
        path = here / "glue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = unwrapped(sublayer("tasks", "glue").shown())
    shown = ("tasks", "sst2", "--show", "--data", "glue", "--tokenizer", trained, "--json")
    found = sublayer(*shown).found()["formats"]["traversal"]
    assert "_start_" in found["marks"] and len(found["rows"][0]) == len("fine") + 2
    assert words.index("sst2, train: 1 row") < words.index("sst2, test: 1 row left out")
    for message in (
        "train 2, test 1",
        "sst2, train: 2 rows left out: fewer than 2 fields; the first is glue/SST-2/train.tsv:3",
        "sst2, train: 1 row left out: no label (-1 or empty); the first is glue/SST-2/train.tsv:6",
        "rte, dev: cannot be read: glue/RTE/dev.tsv:2: 'perhaps' is not a label of RTE",
        "not there: cola, mrpc,",
    ):
        assert message in words


def test_tokens_of_any_bytes_are_shown(sublayer, trained, tmp_path, standard_input):
    standard_input(b"\xffab")
    found = sublayer("tokenize", trained, "--json").found()
    assert (found["ids"], found["pieces"]) == ([255, 97, 98], ["\\xff", "a", "b"])
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\ncat\n")
    found = sublayer("tokenize", tmp_path, "--text", "the Cat sat", "--json").found()
    assert (found["ids"], found["unknown"]) == ([1, 2, 0], 1)


def test_rules_of_gpt1_are_replaced_and_compared(sublayer, trained, here, standard_input):
    asked = ("--path", trained.parent / "text.txt", "--kind", "gpt1-bpe", "--vocab-size", 70)
    trained = sublayer("tokenize", *asked, "--normalization", "transformers", "--out", "fast.json")
    assert "(The to the)" in trained.err
    words = ("tokenize", "fast.json", "--normalization", "published", "--out", "published.json")
    assert sublayer(*words).shown().startswith("gpt1-bpe of 70 ids, published text rules")
    for source in ("fast.json", "published.json"):
        standard_input(b"can't\ncan't cat")
        found = sublayer("tokenize", source, "--differences", "--json").found()
        assert (found["words"], found["different"], found["bytes"]) == (3, 2, 15)
        pieces = {"published": ["ca", "n't"], "transformers": ["can", "'", "t"]}
        assert found["changes"] == [{**pieces, "times": 2}]
        assert found["published"]["tokens"] > 0 == found["transformers"]["line_ends"]
    shown = sublayer("tokenize", "fast.json", "--differences", "--text", "can't cat").shown()
    assert "of 2 words split by whitespace, 1 differ (50.0%)" in shown


def test_a_plan_counts_trials_and_looks_at_the_disk_that_is_named(sublayer, tmp_path):
    arms = ("--vary", "model.ffn=gelu,swiglu", "--seeds", "3")
    words = (*arms, "--tune", "optimizer.lr=1e-3,2e-3,4e-3", "--out", tmp_path / "not" / "yet")
    plan = sublayer("plan", "gpt", *words, "--device", "cuda:1", "--json").answer()
    assert (plan["total"]["runs"], plan["available"]["device"]) == (2 * (3 + 3), "cuda")
    assert plan["available"]["disk_bytes"] == pytest.approx(disk_usage(tmp_path).free, rel=0.1)


@pytest.fixture
def planned(sublayer):
    asked = ("plan", "gpt", "model.vocab_size=1000", "train.steps=3600", "--json")
    return lambda words: sublayer(*asked, *words.split()).found()


def test_time_follows_from_the_datasheet(planned):
    plan = planned("--processes 4 --device h100 --share 0.5")
    (its,) = plan["processes"]["arms"]
    assert (its["sequences"], its["micro_batches"], its["precision"]) == (2, 1, "bfloat16")
    operations = plan["arms"][0]["flops_per_token"] * its["tokens_per_step"]
    computing = operations / 4 / (0.5 * DEVICES["h100"].bfloat16_per_s)
    for shard in its["shards"]:
        sending = shard["sent_bytes"]["total"] / 450e9
        low, high = max(computing, sending), computing + sending
        # 3,600 steps of so many seconds are so many hours.
        expected = {"computing_seconds": computing, "sending_seconds": sending}
        expected |= {"seconds_per_step": [low, high], "hours": [low, high]}
        expected |= {"share_of_peak": [0.5 * computing / low, 0.5 * computing / high]}
        for name, value in expected.items():
            assert shard[name] == pytest.approx(value), name
    assert [shard["shard"] for shard in its["shards"]] == ["none", "optimizer", "full"]


def test_the_momentum_of_muons_maps_is_sent_where_it_is_sharded(planned):
    adamw, muon = (
        planned(f"optimizer.kind={kind} --processes 4 --device h100")["processes"]["arms"][0]
        for kind in ("adamw", "muon")
    )
    pairs = zip(adamw["shards"], muon["shards"], strict=True)
    sent = [theirs["sent_bytes"]["summing"] - its["sent_bytes"]["summing"] for its, theirs in pairs]
    assert sent[0] == 0 < sent[1] == sent[2]


def test_the_slowest_process_counts_at_its_rate_and_between_machines_a_link(planned):
    for words, share, rate in (
        ("--processes 3 --device h100", 3 / 8, DEVICES["h100"].bfloat16_per_s),  # of 8 windows 3
        ("train.precision=float32 --device a100", 1, DEVICES["a100"].float32_per_s),
    ):
        plan = planned(words)
        (its,) = plan["processes"]["arms"]
        operations = plan["arms"][0]["flops_per_token"] * its["tokens_per_step"]
        assert its["shards"][0]["computing_seconds"] == pytest.approx(operations * share / rate)
    words = "train.batch_sequences=16 --processes 16 --device h100"
    found, given = (planned(words + more)["processes"] for more in ("", " --link 50"))
    assert [each["sending_seconds"] for each in found["arms"][0]["shards"]] == [None] * 3
    assert ["give --link" in str(each["notes"]) for each in (found, given)] == [True, False]
    for shard in given["arms"][0]["shards"]:
        assert shard["sending_seconds"] == pytest.approx(shard["sent_bytes"]["total"] / 50e9)


def test_processes_of_this_machine_share_its_memory_and_exact_divides_nothing(planned):
    many = "train.batch_sequences=60000 --processes 60000"
    for words, fits in (("--processes 2", True), (many, False)):
        found = planned(f"{words} --device cpu")["processes"]
        shard = found["arms"][0]["shards"][0]
        assert (shard["seconds_per_step"], found["datasheet"], shard["fits"]) == (None, None, fits)
    (arm,) = planned("train.exact=true --processes 4 --device h200")["processes"]["arms"]
    [shard] = arm["shards"]
    # Eight micro-batches, of which each process has two, and sends one sum of them and the total.
    assert (shard["shard"], arm["micro_batches"]) == ("none", 2)
    assert shard["sent_bytes"]["total"] == 2 * shard["memory"]["weights"] * 3 // 4


@pytest.mark.parametrize("words, message", [
    ("--processes 9 --device h200", "exceeds the 8 windows of a batch"),
    ("--share 0 --device h100", "--share 0 gives no speed"),
    ("--link 50 --device h100", "--link needs devices"),
    ("--link 0 --processes 2 --device h100", "--link 0 gives no bandwidth"),
    ("--measure --device h100", "--measure times this machine"),
    ("--processes 2 --jobs 2", "--jobs 2 runs one process per run"),
])  # fmt: skip
def test_a_plan_that_contradicts_itself_is_refused(sublayer, words, message):
    assert message in sublayer("plan", "gpt", "train.steps=3600", *words.split()).refusal()


VOCABULARY = {"tokenizer.json": ByteTokenizer().serialize()}


def save_untrained(folder, **fields):
    config = ModelConfig.model_validate({"d_model": 12, "n_heads": 2, **fields})
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    save_model(folder, model, VOCABULARY)
    return folder


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"The dog sat over the cat;\nit was wet, and green."[:32])
    return path


def inspected(sublayer, what, run, *options):
    [found] = sublayer("inspect", what, run, *options, "--json").answer()["runs"]
    return found


def test_a_decoder_and_an_encoder_are_drawn_in_one_plot(sublayer, trained, tmp_path):
    out, text = tmp_path / "new" / "layers.svg", trained.parent / "text.txt"
    fields = {"kind": "encoder", "n_layers": 4, "share": "all", "norm_order": "post"}
    encoder = save_untrained(tmp_path / "encoder", **fields)
    words = ("inspect", "layers", trained, encoder, "--path", text, "--tokens", 96, "--out", out)
    shown = sublayer(*words).shown()
    assert unwrapped(shown).startswith(f"{trained}: 96 tokens of {text}, in 3 windows of 32 block")
    assert f"{encoder}: 96 tokens of {text}, in 6 windows of 16 block" in unwrapped(shown)
    assert re.findall(r"^ +(\d+) ", shown, re.MULTILINE) == ["1", "1", "2", "3", "4"]
    drawn = ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}text")
    assert [each.text for each in drawn][-2:] == ["run", "encoder"]
    before = out.read_bytes()
    assert "already exists: name another file" in sublayer(*words).refusal()
    assert out.read_bytes() == before


def test_runs_that_read_different_texts_are_told_apart(sublayer, trained, tmp_path):
    moved, text, before = tmp_path / "run", tmp_path / "text.txt", trained.parent / "text.txt"
    shutil.copytree(trained, moved)
    text.write_text(before.read_text().swapcase())
    recipe = (moved / "recipe.toml").read_text()
    (moved / "recipe.toml").write_text(recipe.replace(str(before), str(text)))
    changed = sublayer("inspect", "layers", moved).refusal()
    assert "has changed since training" in changed
    (moved / "record.json").unlink()
    out = tmp_path / "layers.svg"
    shown = sublayer("inspect", "layers", trained, moved, "--out", out).shown()
    assert "\n\nthe runs read different texts: give one to all by --path\n" in shown
    assert all(str(run)[-60:] in out.read_text() for run in (trained, moved))
    shutil.copytree(trained, tmp_path / "mute")
    (tmp_path / "mute/model/tokenizer.json").unlink()
    for options in ((), ("--path", text)):
        said = sublayer("inspect", "layers", tmp_path / "mute", *options).err
        assert "mute has no tokenizer.json, which encodes" in said
    shown = sublayer("inspect", "layers", trained, moved, "--path", text).out
    assert "different texts" not in shown


def test_numbers_of_tokens_that_never_move_are_null(sublayer, trained, text, tmp_path):
    model, zero = load(trained).model, tmp_path / "zero"
    for parameter in model.parameters():
        parameter.data.zero_()
    save_model(zero, model, VOCABULARY)
    (layer,) = inspected(sublayer, "layers", zero, "--path", text)["layers"]
    assert (layer["distance"], layer["norm_in"], layer["angle_degrees"]) == (0.0, 0.0, None)
    assert f"{math.nan}°" in sublayer("inspect", "layers", zero, "--path", text).out
    out = tmp_path / "zero.svg"
    (stack,) = inspected(sublayer, "paths", zero, "--path", text, "--out", out)["stacks"]
    assert stack["shares"] == [None, None]
    shown = unwrapped(sublayer("inspect", "paths", zero, "--path", text).shown())
    assert "the plane has none and none of the variance of their states" in shown
    assert out.is_file()
    (layer,) = inspected(sublayer, "splitting", zero, "--path", text)["layers"]
    assert (layer["lie"], layer["own"], layer["way"]) == (None, None, 0.0)
    assert sublayer("inspect", "splitting", zero, "--path", text).code == 0


def test_splittings_of_known_flows_are_measured_and_drawn(sublayer, tmp_path):
    plot = tmp_path / "errors.svg"
    rows = sublayer("inspect", "splitting", "--out", plot, "--json").answer()["local_errors"]
    names = ("equation", "substeps", "splitting")
    orders = {tuple(map(row.get, names)): row["slopes"][-1] for row in rows}
    lie, strang = "Lie (Transformer)", "Strang (Macaron)"
    exact = [orders["linear", "exact", name] for name in (lie, strang)]
    assert [*exact, orders["linear", "Euler", strang]] == pytest.approx([2, 3, 2], abs=0.1)
    assert orders["linear, of operators that commute", "exact", lie] is None
    assert "Strang (Macaron)" in plot.read_text()


def test_layers_are_split_unless_norms_behind_them_have_gains(sublayer, trained, text, tmp_path):
    plot = tmp_path / "layers.svg"
    asked = ("inspect", "splitting", trained, "--tokens", 64)
    found = sublayer(*asked, "--out", plot, "--json").found()["runs"][0]["layers"]
    assert plot.is_file()
    assert " way stack layer Lie Strang as trained way " in unwrapped(sublayer(*asked).out)
    fields = {"norm_order": "post", "n_layers": 3}
    post = save_untrained(tmp_path / "post", norm_affine=False, **fields)
    behind = inspected(sublayer, "splitting", post, "--path", text)["layers"]
    assert [layer["layer"] for layer in behind] == [2, 3]
    for layer in (*found, *behind):
        assert layer["own"] == pytest.approx(layer["lie"])
        assert layer["strang"] > 0
    affine = save_untrained(tmp_path / "affine", norm_affine=True, **fields)
    refusal = sublayer("inspect", "splitting", affine, "--path", text).refusal()
    assert "gains, which move a token even where a sub-layer adds nothing" in refusal


def test_layers_of_an_lstm_are_measured_and_not_split(sublayer, trained, tmp_path):
    run, text = tmp_path / "lstm", trained.parent / "text.txt"
    words = ("model.kind=lstm", "model.n_layers=2", "model.d_model=24", "data.context=32")
    words += ("train.steps=2", "train.batch_sequences=4", "train.threads=1", f"data.path={text}")
    assert sublayer("train", "gpt", *words, "--out", run).code == 0
    assert len(inspected(sublayer, "layers", run)["layers"]) == 2
    for what, why in (("splitting", "and its layers replace"), ("paths", "which has no sub-lay")):
        assert f"is an LSTM, {why}" in sublayer("inspect", what, run).refusal()
    words = ("generate", run, "--prompt", "The cat sat on the mat. " * 3, "--seed", 1)
    longer, shorter = (sublayer(*words, "--tokens", n).out for n in (70, 40))
    assert len(shorter) > 80 and longer.startswith(shorter.rstrip("\n\ufffd"))


def test_a_run_goes_out_and_comes_back(sublayer, trained, tmp_path, monkeypatch):
    there, back = tmp_path / "out", tmp_path / "back"
    first, second, _ = sublayer("export", trained, "--to", "huggingface", there).out.splitlines()
    assert first == f"exported: {there}, with its tokenizer"
    assert second.startswith("largest difference of logits from transformers ")
    found = sublayer("import", "huggingface", there, "--out", back, "--json").answer()
    assert found["certificate"] == json.loads((back / "certificate.json").read_text())
    assert found["certificate"]["largest_difference"]["float64"] < 1e-9
    words = ("--path", trained.parent / "text.txt", "--json")
    before, after = (sublayer("evaluate", run, *words).answer() for run in (trained, back))
    assert before["loss"] == after["loss"]
    monkeypatch.chdir(tmp_path)
    assert sublayer("import", "huggingface", there).code == 0
    assert (tmp_path / "runs" / "out" / "model.safetensors").is_file()


def test_a_model_that_answers_comes_in_and_goes_out(sublayer, tmp_path):
    there, back, again = (tmp_path / name for name in ("there", "back", "again"))
    model = model_for("gpt2", TASKS["sst2"], head="linear")
    files = {"tokenizer.json": model.tokenizer.serialize(), **spec_files(model.task)}
    save_model(tmp_path / "model", model.model, files)
    exported = sublayer("export", tmp_path / "model", there).shown()
    named = "left out, as GPT2ForSequenceClassification has none: vocabulary head"
    assert named in exported.splitlines()
    shown = sublayer("import", "huggingface", there, "--out", back).shown()
    assert shown.endswith(f"next: sublayer evaluate {back} --path DIR\n")
    exported = sublayer("export", back, "--to", "huggingface", again).shown()
    following = f"next: transformers.pipeline('text-classification', model={str(again)!r})\n"
    assert exported.endswith(following)
    (there / "task.json").unlink()
    unnamed = sublayer("import", "huggingface", there, "--out", tmp_path / "unnamed").shown()
    assert unnamed.endswith("/unnamed --task TASK --path DIR\n")


def test_the_release_of_gpt1_comes_in(sublayer, tmp_path):
    folder = save_arrays(tmp_path / "released", draw_arrays())
    shown = sublayer("import", "gpt1-numpy", folder, "--out", tmp_path / "gpt1").shown()
    assert "/gpt1, without a tokenizer: encoder_bpe_40000.json and vocab_40000.bpe" in shown


GENERATE, OF_M = 'generate a --prompt "The "', 'generate m --prompt "'
TESTED, BOOK = "evaluate a --split test", {"data.path": "book.txt"}
TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
PARTS = {"": "train", "valid_": "valid", "test_": "test"}.items()
PAIRS = {f"data.{part}source_path": f"{name}.en" for part, name in PARTS}
PAIRS |= {f"data.{part}target_path": f"{name}.de" for part, name in PARTS}
ALL = ("train", "valid", "test")


@pytest.mark.parametrize("recipe, settings, splits, first, second", [
    ("bert-base", TASK, ALL, "evaluate a", "predict a FILE"),
    ("gpt", BOOK, ALL[:2], "evaluate a --split valid", GENERATE),
    ("gpt", {}, ALL[:1], "evaluate a --path FILE", GENERATE),
    ("albert-small", {"data.path": "my books"}, ALL[:1], "evaluate a --path 'my books'",
     "inspect layers a --path 'my books'"),
    ("t5-mini", {**BOOK, "objective.noise": "prefix"}, ALL, TESTED, GENERATE),
    ("multi30k-tiny", {**PAIRS, "data.test_source_path": "test.en.gz"}, ALL, TESTED,
     "translate a < valid.en"),
    ("multi30k-tiny", {"data.path": "pairs.tsv"}, ALL, TESTED, "translate a < FILE"),
])  # fmt: skip
def test_after_training_stand_its_commands(recipe, settings, splits, first, second):
    found = after_training("a", load_recipe(recipe, settings).recipe, splits)
    assert list(found) == [f"next: sublayer {first}", f"      sublayer {second}"]


@pytest.mark.parametrize("kind, marks, commands", [
    ("decoder", {}, ["evaluate m --path FILE", f'{OF_M}The "']),
    ("encoder", {}, ["inspect layers m --path FILE"]),
    ("encoder", {"has_head": False},
     ["embed m FILE --out vectors.npy", "finetune m TASK --data DIR"]),
    ("encoder-decoder", {"is_translator": True}, ["translate m < FILE"]),
    ("encoder-decoder", {"knows_gaps": True}, [f'{OF_M}The <extra_id_0> of the book."']),
    ("encoder-decoder", {}, [f'{OF_M}The "']),
    ("decoder", {"answers": "rte", "lacks_marks": True}, ["finetune m TASK --data DIR"]),
])  # fmt: skip
def test_after_an_import_stand_its_commands(kind, marks, commands):
    found = after_import("m", kind, **{"is_translator": False, "knows_gaps": False, **marks})
    lines = [line.removeprefix("next: ").strip() for line in found]
    assert lines == [f"sublayer {command}" for command in commands]
