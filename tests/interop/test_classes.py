"""Every class of transformers: fields, logits in and out, heads that answer, refusals."""

import dataclasses
import json
import re

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import processors

from sublayer.api.run import load
from sublayer.api.writing import predict
from sublayer.cli import main as cli
from sublayer.config.messages import choices_of
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import ResolvedModel
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.certificate import CertificateBatch
from sublayer.interop.family import MOST_LABELS
from sublayer.interop.foreign_config import CLASSES as LISTED
from sublayer.interop.foreign_config import Content, Rule
from sublayer.interop.huggingface import (
    FAMILIES,
    export_huggingface,
    family_for,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.tokenizers import _with_marks, _without_marks
from sublayer.model.layers import load_class
from sublayer.model.transformer import build
from sublayer.objective.supervised.heads import unscaled
from sublayer.tasks.registry import TASKS, TaskSpec
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.interop.answering import model_for
from tests.interop.classes import CHOICE, CLASSES, COMING, EXPORTED, LIMIT, VOCAB_SIZE
from tests.interop.folders import change_json, change_weights, check_refused, close, read_json
from tests.interop.tiny import config_of, difference, lifted, tiny, with_random_vectors
from tests.model.test_published import LIMITS
from tests.task_files import write_rte

CHOICES = {
    name: (True, False) if field.annotation is bool else choices_of(field.annotation)
    for name, field in ModelConfig.model_fields.items()
    if field.annotation is bool or choices_of(field.annotation)
}


@pytest.mark.parametrize("name, pad_id, n_rows", [("gpt2", None, 2), ("gpt2 for labels", None, 1),
    ("gpt2 for labels", 0, 2), ("bert", None, 2)])  # fmt: skip
def test_a_certificate_compares_two_rows_or_one_where_nothing_pads_answers(name, pad_id, n_rows):
    drawn = CertificateBatch.draw(config_of(name), pad_id)
    assert len(drawn.tokens) == n_rows and (pad_id is None or not (drawn.tokens == pad_id).any())


def test_classes_are_listed_as_their_families_have_them():
    families = [load_class(row.family) for row in LISTED]
    found = [(family.title, family.always["kind"]) for family in families]
    assert found == [(row.title, row.kind) for row in LISTED]


@pytest.mark.parametrize("name", list(CLASSES))
def test_fields_and_defaults_are_those_of_transformers(name):
    import transformers

    table, kind = FAMILIES[name].fields, getattr(transformers, CLASSES[name][0]).config_class
    declared = {each.name: each.default for each in dataclasses.fields(kind)}
    defaults = {key: value.default for key, value in table.fields.items() if key in declared}
    assert defaults == {key: declared[key] for key in defaults}
    assert table.title == kind.__name__
    assert dict(table.aliases) == kind.attribute_map
    assert not table.aliases.keys() & table.fields.keys()
    assert set(table.aliases.values()) <= table.fields.keys()
    aliases = {field: alias for alias, field in table.aliases.items()}
    renamed = {aliases.get(field, field): value for field, value in CLASSES[name][1].items()}
    read = [table.read(Content("config.json", each)).ours for each in (CLASSES[name][1], renamed)]
    assert read[0] == read[1]


@pytest.mark.parametrize("name, title, fields", rows(COMING, 56), ids=str)
def test_a_class_comes_in_and_goes_out_with_its_outputs_and_bits(tmp_path, name, title, fields):
    original = tiny(name, title=title, **fields)
    harmless = {"return_dict": False, "dtype": "os.system", "torch_dtype": [1], "id2label": 3}
    harmless |= {"num_labels": 1_000_000_000, "attn_implementation": "kernels-community/flash-attn"}
    harmless |= {"problem_type": "x", "transformers_version": [[1]], "architectures": {"a": None}}
    computed = {*FAMILIES[name].fields.fields, *CLASSES[name][1]}
    harmless = {key: value for key, value in harmless.items() if key not in computed}
    folder = original.save(tmp_path / "theirs", **harmless, wheels={}, rotary=True)
    for file in ("adapter_config.json", "README.md"):
        (folder / file).write_text("[" * 5000)
    certificate = import_huggingface(folder, tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < LIMIT
    allowed = LIMITS[torch.float32] * max(1.0, certificate["largest_logit"])
    assert certificate["largest_difference"]["float32"] < allowed
    assert certificate["ignored"].startswith("rotary, wheels of config.json")
    model = load(tmp_path / "ours")
    assert difference(name, model, original.model()) < LIMIT
    export_huggingface(model, tmp_path / "back", type(FAMILIES[name]).title)
    with lifted(original.kind):
        again = original.kind.from_pretrained(tmp_path / "back", dtype=torch.float64)
    assert difference(name, model, again) < LIMIT
    assert read_json(tmp_path / "back" / "config.json")["architectures"] == [original.kind.__name__]
    read = read_huggingface(tmp_path / "back").model
    assert read.config == model.config
    close(read.state_dict(), model.state_dict(), 0.0)
    [*original.tensors.values()][-1].add_(1.0)
    with pytest.raises(CheckpointError, match="differ from transformers'"):
        difference(name, model, original.model())


VALUES = [
    ("gpt2", "tie_word_embeddings", 1), ("gpt2", "n_layer", 0), ("gpt2", "n_layer", 10**5000),
    ("gpt2", "activation_function", "mish"), ("gpt2", "attn_pdrop", 1.0),
    ("bert", "pad_token_id", VOCAB_SIZE), ("bert", "position_embedding_type", "relative_key"),
    ("bert", "type_vocab_size", 3), ("m2m_100", "scale_embedding", None),
    ("m2m_100", "decoder_ffn_dim", 7), ("m2m_100", "decoder_start_token_id", 1),
    ("marian", "decoder_vocab_size", VOCAB_SIZE + 1), ("marian", "decoder_start_token_id", 3),
    ("marian", "share_encoder_decoder_embeddings", False),
    ("t5", "feed_forward_proj", "gated-tanh"), ("t5", "relative_attention_max_distance", 4),
    ("bert for labels", "id2label", {"0": "a", "2": "b"}),
    ("gpt2 for labels", "id2label", {"0": "a", "1": "a"}),
    ("albert for labels", "id2label", {"0": " "}),
    ("bert for labels", "id2label", {str(n): f"{n}" for n in range(MOST_LABELS + 1)}),
    ("bert for labels", "problem_type", "multi_label_classification"),
    ("openai-gpt for choices", "summary_type", "mean"), ("bert for labels", "num_labels", 4),
    ("roberta", "pad_token_id", 15), ("roberta", "type_vocab_size", 3),
    ("roberta", "hidden_act", "gelu_new"), ("electra for choices", "summary_type", "mean"),
    ("electra for labels", "hidden_act", "gelu_new"), ("distilbert", "activation", "mish"),
    ("modernbert", "layer_types", ["full_attention"]), ("modernbert", "layer_types", "full"),
    ("modernbert", "attention_bias", True), ("modernbert", "classifier_activation", "relu"),
    ("modernbert", "sliding_window", 1),
    ("modernbert", "rope_parameters", {"full_attention": {"rope_type": "yarn"}}),
    ("modernbert", "rope_parameters", [1]), ("modernbert", "rope_scaling", {"factor": 2.0}),
    ("modernbert for labels", "classifier_pooling", "mean"),
    ("bart", "decoder_start_token_id", 3), ("gpt2", "is_causal", False),
    ("llama", "is_causal", False), ("m2m_100", "is_causal", False), ("t5", "is_causal", False),
    ("bart", "is_causal", True), ("bert", "is_causal", True),
    ("bert", "transformers_weights", "other.safetensors"),
]  # fmt: skip


@pytest.mark.parametrize("name, changed, value", VALUES, ids=range(len(VALUES)))
def test_a_value_of_another_type_or_out_of_range_is_refused_by_name(name, changed, value):
    aliases, fields = FAMILIES[name].fields.aliases, CLASSES[name][1]
    left = {key: each for key, each in fields.items() if key not in (changed, aliases.get(changed))}
    tensors, content = tiny(name).tensors, Content("config.json", {**left, changed: value})
    with pytest.raises(CheckpointError, match=rf"config.json.*\b({changed}|model\.\w+)\b"):
        FAMILIES[name].read_config(FAMILIES[name].fields.read(content), tensors)


def built(name, **changes):
    return TextModel(build(config_of(name, **changes), seed=0))


def test_names_that_contradict_each_other_and_other_tables_are_refused(tmp_path):
    folder = tiny("gpt2").save(tmp_path / "doubled", num_attention_heads=4)
    check_refused(folder, "n_head = 3 and num_attention_heads = 4 are the same")
    folder = tiny("gpt2").save(tmp_path / "phi3", model_type="phi3")
    check_refused(folder, "model_type = 'phi3'; only 'gpt2'")
    original, table = tiny("marian"), "model.encoder.embed_positions.weight"
    original.tensors[table] += 0.1
    check_refused(original.save(tmp_path / "other"), "does not hold")
    original.tensors[table] = torch.ones(3)
    check_refused(original.save(tmp_path / "none"), "does not hold Marian's")
    folder = tiny("marian").save(tmp_path / "long", max_position_embeddings=99)
    check_refused(folder, "does not hold Marian's")
    with pytest.raises(ConfigError, match="vocab_size = 2 has no room for eos_token_id = 2"):
        export_huggingface(built("m2m_100", vocab_size=2), tmp_path / "small")


def task_of(name):
    """Return the task that decides what a model is exported as; None where its head does."""
    return CHOICE if name.endswith("for choices") else None


class LaterConfig(ResolvedModel):
    """A model's config with a field that came later."""

    later: int = 3


def test_a_field_that_no_table_has_is_refused_unless_it_has_its_default():
    for name, family in FAMILIES.items():
        assert family.table.keys() <= ModelConfig.model_fields.keys()
        for each, allowed in family.table.items():
            if each in CHOICES and not isinstance(allowed, Rule):
                # Of a number among choices, what other systems have is its default.
                assert set(allowed) <= {*CHOICES[each], ModelConfig.model_fields[each].default}
        config, task = config_of(name), task_of(name)
        assert family_for(config, task) is family
        assert family_for(LaterConfig(**dict(config)), task) is family
        with pytest.raises(ConfigError, match="represent model.later = 4:"):
            family_for(LaterConfig(**dict(config), later=4), task)


@pytest.mark.parametrize("name, changes, named", [
    # The first segment has a vector, which a decoder adds to every token.
    ("gpt2", {"segments": "both"}, "segments = both"), ("t5", {"bias": True}, "bias = true"),
    ("gpt2", {"positions": "rotary", "d_head": 8}, "d_head = 8"),
    ("gpt2", {"norm": "rms", "ffn": "swiglu"}, "ffn = swiglu, model.norm = rms"),
    *((of, {"embedding_scale": 3.0}, "embedding_scale = 3.0") for of in ("gpt2", "t5", "marian")),
    ("gpt2", {"block": ("ffn", "attention")}, "block = ['ffn', 'attention']"),
    ("openai-gpt", {"final_norm": "affine"}, "final_norm = affine"),
    ("openai-gpt", {"gelu": "exact", "ffn": "gelu"}, "gelu = exact"),
    ("m2m_100", {"first_position": 24}, "first_position = 24"),
    # What M2M100 is given to begin with would have no position there.
    ("m2m_100", {"first_position": 2, "decoder_start": "pad"}, "decoder_start = pad"),
    ("marian", {"decoder_block": ("attention", "cross", "ffn:gelu")}, "ffn = gelu, relu"),
    ("bert", {"final_norm": "plain"}, "final_norm = plain"),
    ("bert", {"d_embed": 5}, "embedding_projection = tokens"),
    ("bert that judges pairs", {"sentence_classes": 1}, "sentence_classes = 1"),
    ("t5", {"ffn": "swiglu", "swish_beta": 0.5}, "swish_beta = 0.5"),
    # transformers has no class of spans that there may be none of.
    ("albert for spans", {"span_head": "joint"}, "span_head = joint"),
    ("bert for labels", {"pooler": "none"}, "pooler = none"),
], ids=str)  # fmt: skip
def test_only_the_fields_that_stand_in_the_way_are_named(tmp_path, name, changes, named):
    with pytest.raises(ConfigError, match=re.escape(f"represent model.{named}: ")):
        export_huggingface(built(name, **changes), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


PLAIN = {"bias": False, "norm_affine": False}
OPTIONS = [
    ("gpt2", {"tie_embeddings": False, "gelu": "exact", "d_ff": None}),
    ("gpt2", {**PLAIN, "final_norm": "plain", "block": ("attention", "ffn:swish")}),
    ("gpt2", {"positions": "none", "attention_scale": "none", "norm_eps": 1e-2, "share": "all"}),
    ("gpt2", {"positions": "sinusoidal", "embedding_scale": "sqrt", "tie_embeddings": False}),
    ("gpt2", {"embedding_scale": "sqrt", "share": "attention", "segments": "second"}),
    ("openai-gpt", {**PLAIN, "tie_embeddings": False, "positions": "none", "share": "ffn"}),
    ("openai-gpt for choices", {"softmax": "all", "embedding_scale": "sqrt"}),
    ("bert", {**PLAIN, "head_bias": False, "tie_embeddings": False, "segments": "none"}),
    ("bert that judges pairs", {"positions": "none", "segments": "second", "share": "attention"}),
    ("bert for labels", {"positions": "sinusoidal", "embedding_scale": "sqrt"}),
    ("bert that judges pairs", {"share": "attention", "n_layers": 4, "share_groups": 2}),
    # Groups that transformers rounds otherwise.
    ("albert", {"n_layers": 18, "share_groups": 14}),
    ("albert", {"n_layers": 4, "share_groups": 2, "share_inner": 2, "tie_embeddings": False}),
    ("albert with another width of the table", {**PLAIN, "share": "ffn", "d_embed": 14}),
    ("albert for spans", {"d_embed": 12, "project_embeddings": "always", "share": "all"}),
    ("m2m_100", {"n_decoder_layers": 3, "tie_embeddings": False, "embedding_scale": "none"}),
    ("m2m_100", {**PLAIN, "first_position": 3, "ffn": "gelu", "norm_eps": 1e-5}),
    ("marian", {"head_bias": False, "tie_embeddings": False, "share": "all", "ffn": "swish"}),
    ("t5", {"ffn": "geglu", "gelu": "tanh", "output_scale": "sqrt", "n_decoder_layers": 1}),
    ("t5", {"norm_affine": False, "embedding_scale": "sqrt", "share": "all", "d_head": 5}),
    ("t5", {"tie_embeddings": False, "relative_buckets": 4, "relative_distance": 17}),
]

OPTIONS += [(name, {}) for name in rows(sorted(EXPORTED.keys() - dict(OPTIONS).keys()), 30)]


@pytest.mark.parametrize(("name", "fields"), OPTIONS, ids=str)
def test_a_model_is_exported_with_the_same_logits(tmp_path, name, fields):
    config, task = config_of(name, **fields), task_of(name)
    assert family_for(config, task) is FAMILIES[EXPORTED[name][0]]
    model = with_random_vectors(build(config, seed=1))
    if config.label_outputs and config.norm == "rms":
        model.label_head.bias.data.zero_()
    spec = None if task is None else TaskSpec((task,), "pair", config.max_len)
    certificate = export_huggingface(TextModel(model, None, spec), tmp_path / "exported")
    assert certificate["checked"]
    # Sinusoids and scaled tables are rounded to float32, and norms enlarge what is rounded.
    assert certificate["largest_difference"]["float64"] <= 1e-4 * certificate["largest_logit"]


@pytest.mark.parametrize("kept", ["transformer.tokens_embed.weight", "lm_head.weight"])
def test_two_heads_may_name_their_one_matrix_either_way(tmp_path, kept):
    original = tiny("openai-gpt for choices")
    (stored,) = {"transformer.tokens_embed.weight", "lm_head.weight"} & original.tensors.keys()
    folder = original.save(tmp_path / "theirs")
    change_weights(folder, lambda held: {kept: held.pop(stored), **held})
    assert torch.equal(read_huggingface(folder).model.embedding.weight, original.tensors[stored])


def test_labels_without_words_and_single_outputs_are_read(tmp_path):
    folder = tiny("bert for labels").save(tmp_path / "plain", id2label=..., num_labels=3)
    worded = tiny("bert for labels", id2label={"2": "yes", "0": "no", "1": "it may be"})
    read = [read_huggingface(each) for each in (folder, worded.save(tmp_path / "worded"))]
    labels = [model.task.tasks[0].labels for model in read]
    assert labels == [("LABEL_0", "LABEL_1", "LABEL_2"), ("no", "it may be", "yes")]
    original = tiny("bert for labels", id2label={"0": "score"})
    for problem in (..., "regression"):
        folder = original.save(tmp_path / "number", problem_type=problem)
        task = read_huggingface(folder).task.tasks[0]
        assert (task.kind, task.labels, task.is_bounded) == ("number", (), False)
        outputs = torch.tensor([-7.5, 0.25, 1e3])
        assert torch.equal(unscaled(task, outputs), outputs)
    folder = original.save(tmp_path / "one", problem_type="single_label_classification")
    check_refused(folder, "with 1 outputs: a number has one")
    folder = original.save(tmp_path / "tokens", architectures=["BertForTokenClassification"])
    check_refused(folder, "BertForTokenClassification, which cannot be imported")


@pytest.mark.parametrize("name, task, title", [
    ("albert", "stsb", "AlbertForSequenceClassification"),
    ("albert", "copa", "AlbertForMultipleChoice"), ("bert", "squad", "BertForQuestionAnswering"),
    ("gpt2", "mnli", "GPT2ForSequenceClassification"),
    ("gpt1", "race", "OpenAIGPTDoubleHeadsModel"), ("t5", "sst2", "T5ForConditionalGeneration"),
    ("t5", "stsb", "T5ForConditionalGeneration"),
])  # fmt: skip
def test_an_export_is_of_the_class_that_answers_and_keeps_its_task(tmp_path, name, task, title):
    model = model_for(name, TASKS[task])
    model.model.double()
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    fields = read_json(tmp_path / "exported" / "config.json")
    settings = read_json(tmp_path / "exported" / "tokenizer_config.json")
    assert (fields["architectures"], settings["model_max_length"]) == ([title], 64)
    if task == "mnli":
        words = ["entailment", "neutral", "contradiction"]
        assert fields["id2label"] == {str(index): word for index, word in enumerate(words)}
        assert fields["label2id"] == dict(zip(words, range(3), strict=True))
        assert fields["problem_type"] == "single_label_classification"
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.task == model.task
    text = b"the cat ran over the field"
    assert again.tokenizer.encode(text).tolist() == model.tokenizer.encode(text).tolist()
    assert again.tokenizer.added_ids == model.tokenizer.added_ids


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_one_output_of_two_labels_becomes_one_of_each(tmp_path, name):
    model = model_for(name, TASKS["sst2"], label_outputs=1)
    model.model.double()
    export_huggingface(model, tmp_path / "exported")
    again = read_huggingface(tmp_path / "exported")
    assert again.model.config.label_outputs == 2
    found, expected = (predict(each, [{"sentence": "the cat ran"}])[0] for each in (again, model))
    assert found.probabilities == pytest.approx(dict(expected.probabilities), abs=1e-9)


@pytest.mark.parametrize("name, task, fields, message", [
    ("gpt1", "qqp", {}, "OpenAIGPTForSequenceClassification reads one row"),
    ("gpt2", "copa", {}, "a row for each choice"),
    ("gpt1", "copa", {"head": "none"}, "model.head = none: .*objective.language_weight"),
    ("bert", "mnli", {"pooler": "none"}, "model.pooler = none: .*model.pooler=tanh"),
    ("bert", "mnli", {"norm": "rms"}, "model.norm = rms: the model cannot be exported$"),
])  # fmt: skip
def test_a_task_that_no_class_answers_is_refused(tmp_path, name, task, fields, message):
    with pytest.raises(ConfigError, match=message):
        export_huggingface(model_for(name, TASKS[task], **fields), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


_TABLE = {"kind": "choice", "labels": [], "name": "table", "suite": "table"}


@pytest.mark.parametrize("changes, of_task, message", [
    ({"format": "traversal"}, {}, "the format traversal, which no encoder can"),
    ({"context": 65}, {}, "context 65, not 64"),
    ({"version": [1] * 99}, {}, "has version"), ({"threshold": "x"}, {}, "threshold: input"),
    ({"answer": "guess"}, {}, "answer: input"),
    ({}, {"labels": ["neutral", "entailment", "contradiction"]}, "labels neutral"),
    ({}, {"labels": [1, 2, 3]}, "labels.0: input should be"), ({}, _TABLE, "choice, not classes"),
    ({}, {"kind": "x"}, "kind: input should be"),
    ({}, {"numbers": [1, 1]}, "its numbers are 1 to 1"),
])  # fmt: skip
def test_a_damaged_or_contradicted_task_is_refused(tmp_path, changes, of_task, message):
    export_huggingface(model_for("bert", TASKS["mnli"]), tmp_path / "exported")
    (task,) = read_json(tmp_path / "exported" / "task.json")["tasks"]
    change_json(tmp_path / "exported" / "task.json", tasks=[task | of_task], **changes)
    check_refused(tmp_path / "exported", f"task.json.*{message}")


FIRST = ["the dog ran over the mat", "It is the BEST of them all!", "nothing, and wrong", "a"]
SECOND = ["the cat", "everyone who saw it smiled", "not so", "a film that the cat would"]
# Longer than the context.
LONG = "the field and the cat and the mat and the dog, all of them wrong, " * 3
SENTENCES = ([{"sentence": text} for text in (*FIRST, LONG)], [*FIRST, LONG])
PAIRS = (
    [{"premise": one, "hypothesis": two} for one, two in zip(FIRST, SECOND, strict=True)],
    [{"text": one, "text_pair": two} for one, two in zip(FIRST, SECOND, strict=True)],
)
LONG_PAIRS = (
    [{"premise": LONG, "hypothesis": two} for two in SECOND],
    [{"text": LONG, "text_pair": two} for two in SECOND],
)


def with_two_separators(text_model):
    tokenizer = text_model.tokenizer
    library = Library.from_str(tokenizer.library_file.decode())
    pair, marks = "[CLS]:0 $A:0 [SEP]:0 [SEP]:0 $B:1 [SEP]:1", ("[CLS]", "[SEP]")
    library.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", pair, [(mark, library.token_to_id(mark)) for mark in marks]
    )
    content = json.loads(library.to_str())
    changed = tokenizer.replaced(content, reads_marks=tokenizer.reads_marks)
    return dataclasses.replace(text_model, tokenizer=changed)


@pytest.mark.parametrize("name", ["bert", "bert, two separators", "gpt2"])
@pytest.mark.parametrize(
    ("task", "fields"), [("sst2", SENTENCES), ("mnli", PAIRS), ("mnli", LONG_PAIRS)]
)
def test_pipelines_of_transformers_answer_as_the_exported_model(tmp_path, name, task, fields):
    from transformers import pipeline

    name, _, more = name.partition(", ")
    model = model_for(name, TASKS[task])
    model = with_two_separators(model) if more else model
    export_huggingface(model, tmp_path / task)
    asked = pipeline("text-classification", model=str(tmp_path / task), device="cpu")
    expected = [dict(each.probabilities) for each in predict(model, fields[0])]
    shares = [min(each.values()) for each in expected]
    assert max(shares) - min(shares) > 1e-3
    found = asked(fields[1], top_k=None, truncation=True, batch_size=2)
    for answers, probabilities in zip(found, expected, strict=True):
        scores = {answer["label"]: answer["score"] for answer in answers}
        assert scores == pytest.approx(probabilities, abs=1e-5)


def test_a_score_depends_on_the_words_of_labels_and_not_on_their_order(tmp_path, capsys):
    folder, tasks = tmp_path / "theirs", write_rte(tmp_path / "tasks")
    export_huggingface(model_for("bert", TASKS["rte"]), folder)
    (folder / "task.json").unlink()
    import_huggingface(folder, tmp_path / "plain")
    places = ("classifier.weight", "classifier.bias")
    change_weights(folder, lambda held: held | {name: held[name].flip(0) for name in places})
    change_json(folder / "config.json", id2label={"0": "NOT_ENTAILMENT", "1": "Entailment"})
    import_huggingface(folder, tmp_path / "turned")

    def evaluate(name, *options):
        words = ["evaluate", str(tmp_path / name), "--path", str(tasks), "--json", *options]
        return cli.main(words), capsys.readouterr().out

    plain, turned = (json.loads(evaluate(name, "--task", "rte")[1]) for name in ("plain", "turned"))
    assert plain["tasks"] == turned["tasks"]
    assert plain["loss"] == pytest.approx(turned["loss"], abs=1e-6) and plain["loss"] > 0
    assert [evaluate("plain", *options)[0] for options in ((), ("--task", "sst2"))] == [2, 2]


@pytest.mark.parametrize("own", [
    None, processors.ByteLevel(), processors.Sequence([processors.ByteLevel()] * 2)
])  # fmt: skip
def test_marks_of_traversals_go_beside_what_a_tokenizer_adds_and_come_off_again(own):
    names = dict(zip(TRAVERSAL_NAMES, range(3), strict=True))
    marked = json.loads(_with_marks(own, names).__getstate__())
    assert _without_marks(marked) == (own and json.loads(own.__getstate__()))
