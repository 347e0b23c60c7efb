"""``recipes``, ``fields``, ``tasks``, ``tokenize`` and ``plan``: lists, tokens, forecasts."""

import json
from shutil import disk_usage

import pytest

from sublayer.config.fields.catalog import keys
from sublayer.config.fields.listing import json_schema
from sublayer.estimate.cluster.devices import DEVICES
from tests.commands.results import unwrapped


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
        "rte, dev: cannot be read: glue/RTE/dev.tsv:2: 'perhaps' is no label of RTE",
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
    sublayer("tokenize", *asked, "--normalization", "transformers", "--out", "fast.json").shown()
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
    assert "of 2 words that whitespace divides 1 differ (50.0%)" in shown


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


def test_time_and_price_follow_from_the_datasheet(planned):
    plan = planned("--processes 4 --device h100 --price 2 --share 0.5")
    (its,) = plan["processes"]["arms"]
    assert (its["sequences"], its["micro_batches"], its["precision"]) == (2, 1, "bfloat16")
    operations = plan["arms"][0]["flops_per_token"] * its["tokens_per_step"]
    computing = operations / 4 / (0.5 * DEVICES["h100"].bfloat16_per_s)
    for shard in its["shards"]:
        sending = shard["sent_bytes"]["total"] / 450e9
        low, high = max(computing, sending), computing + sending
        # 3,600 steps of so many seconds are so many hours; four devices at two dollars each.
        expected = {"computing_seconds": computing, "sending_seconds": sending}
        expected |= {"seconds_per_step": [low, high], "hours": [low, high]}
        expected |= {"share_of_peak": [0.5 * computing / low, 0.5 * computing / high]}
        for name, value in {**expected, "cost": [8 * low, 8 * high]}.items():
            assert shard[name] == pytest.approx(value), name
    assert [shard["shard"] for shard in its["shards"]] == ["none", "optimizer", "full"]


def test_the_slowest_process_counts_at_the_rate_of_its_precision(planned):
    for words, share, rate in (
        ("--processes 3 --device h100", 3 / 8, DEVICES["h100"].bfloat16_per_s),  # of 8 windows 3
        ("train.precision=float32 --device a100", 1, DEVICES["a100"].float32_per_s),
    ):
        plan = planned(words)
        (its,) = plan["processes"]["arms"]
        operations = plan["arms"][0]["flops_per_token"] * its["tokens_per_step"]
        assert its["shards"][0]["computing_seconds"] == pytest.approx(operations * share / rate)


def test_between_machines_a_link_has_to_be_given(planned):
    words = "train.batch_sequences=16 --processes 16 --device h100"
    found, given = (planned(words + more)["processes"] for more in ("", " --link 50"))
    assert [each["sending_seconds"] for each in found["arms"][0]["shards"]] == [None] * 3
    assert ["give --link" in str(each["notes"]) for each in (found, given)] == [True, False]
    for shard in given["arms"][0]["shards"]:
        assert shard["sending_seconds"] == pytest.approx(shard["sent_bytes"]["total"] / 50e9)


def test_exact_divides_nothing(planned):
    (arm,) = planned("train.exact=true --processes 4 --device h200")["processes"]["arms"]
    [shard] = arm["shards"]
    # Eight micro-batches, of which each process has two, and sends one sum of them and the total.
    assert (shard["shard"], arm["micro_batches"]) == ("none", 2)
    assert shard["sent_bytes"]["total"] == 2 * shard["memory"]["weights"] * 3 // 4


@pytest.mark.parametrize("words, message", [
    ("--processes 9 --device h200", "is more than a batch has windows, 8"),
    ("--share 0 --device h100", "--share 0 never ends"),
    ("--link 50 --device h100", "--link is between devices"),
    ("--link 0 --processes 2 --device h100", "--link 0 never ends"),
    ("--measure --device h100", "--measure takes steps on this machine"),
    ("--processes 2 --jobs 2", "--jobs 2 makes several runs at a time"),
])  # fmt: skip
def test_a_plan_that_contradicts_itself_is_refused(sublayer, words, message):
    assert message in sublayer("plan", "gpt", "train.steps=3600", *words.split()).refusal()
