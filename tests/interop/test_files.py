"""Files of a folder besides config and weights: tokenizers, settings of generation, the card."""

import json
import shutil
from functools import cache

import huggingface_hub
import numpy as np
import pytest
import tokenizers
import torch
from scipy import stats
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import sublayer
from sublayer.api.run import load
from sublayer.config.objective import EvaluatedMetric
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.decode.sample import Continuation, encode_prompt
from sublayer.errors import CheckpointError, DataError
from sublayer.evaluation.items import Items, ItemTable, quotient_of, write_items
from sublayer.interop.card import _interval, write_card
from sublayer.interop.certificate import certify, certify_tokenizer
from sublayer.interop.exits import Exported
from sublayer.interop.huggingface import FAMILIES, _read, export_huggingface, import_huggingface
from sublayer.interop.tokenizers import decoder_files, with_start
from sublayer.model.transformer import build
from sublayer.statistics.covariance import unequal_units
from sublayer.tasks.registry import TASKS, TaskSpec
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.interop.folders import check_refused, opened, read_json
from tests.interop.tiny import config_of, tiny

CORPUS = [
    "the cat sat on the mat. The DOG and Ünïcode Zwölf 日本語 テスト 12,345 7,0 Paris is",
    "I'll see 2024!\n\nhi don't stop naïve café HELLO 한국어 русский ok",
] * 9  # fmt: skip
TEXTS = [
    "The cat sat on the 12,345 mats. ", "  two  spaces ", "naïve cafe\u0301 日本\n\n  x\r\n",
    "🙂", "", "don't I'LL 2024!\n", "<s>a</s> b<|endoftext|>c <eos>", "a\u00a0b\tc", "▁the ▁",
]  # fmt: skip
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def divided(pattern):
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, BYTES])


DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
CASES = {
    # type of the model, class that is named, division into words, normalizer, special tokens
    "llama 3": ("llama", "PreTrainedTokenizerFast", divided(LLAMA3), None, "<s> </s>"),
    "llama 3, misnamed": ("llama", "LlamaTokenizer", divided(LLAMA3), None, "<s> </s>"),
    "smollm": ("llama", "GPT2Tokenizer", DIGITS, None, "<|endoftext|>"),
    "granite": ("granite", "GPT2Tokenizer", DIGITS, None, "<|endoftext|>"),
    "olmo2": ("olmo2", "GPT2Tokenizer", divided(LLAMA3), None, "<|endoftext|>"),
    "neox": ("gpt_neox", "GPTNeoXTokenizer", GPT2, "NFC", "<|endoftext|> <|padding|>"),
    "neox, by type": ("gpt_neox", None, GPT2, "NFC", "<|endoftext|> <|padding|>"),
    "cohere": ("cohere", "CohereTokenizer", DIGITS, "NFC", "<BOS_TOKEN> <|END_OF_TURN_TOKEN|>"),
    "qwen 2": ("qwen2", "PreTrainedTokenizerFast", GPT2, "NFC", "<|endoftext|> <|im_end|>"),
    "qwen 3": ("qwen3", "Qwen2Tokenizer", GPT2, "NFC", "<|endoftext|> <|im_end|>"),
    "roberta": ("roberta", "RobertaTokenizer", GPT2, None, "<s> <pad> </s> <unk> <mask>"),
    "modernbert": ("modernbert", "PreTrainedTokenizerFast", divided(LLAMA3), "NFC", "[CLS] [SEP]"),
    "llama": ("llama", "LlamaTokenizer", None, "Prepend", "<unk> <s> </s>"),
    "llama, by type": ("llama", None, None, "Prepend", "<unk> <s> </s>"),
    "mistral": ("mistral", "LlamaTokenizer", None, "Prepend", "<unk> <s> </s>"),
    "gemma": ("gemma2", "GemmaTokenizer", None, "Replace", "<pad> <eos> <bos> <unk> <mask>"),
    "gemma, as is": ("gemma2", "PreTrainedTokenizerFast", None, "Replace", "<pad> <eos> <bos>"),
    "unigram": ("gpt2", "PreTrainedTokenizerFast", None, "Unigram", "<s> </s> <unk>"),
    "wordpiece": ("gpt2", "PreTrainedTokenizerFast", None, "WordPiece", "[UNK] [SEP]"),
}  # fmt: skip


@cache
def library(case):
    """Train a tokenizer of a published kind; Llama's and Gemma's get pieces of bytes after it."""
    _, _, words, rules, special = CASES[case]
    special, quiet = special.split(), {"vocab_size": 340, "show_progress": False}
    if words is not None:
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = words, decoders.ByteLevel()
        made.normalizer = normalizers.NFC() if rules else None
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, **quiet)
        made.train_from_iterator(CORPUS, trainer)
    elif rules in ("Unigram", "WordPiece"):
        made = tokenizers.Tokenizer(getattr(models, rules)())
        mark = pre_tokenizers.Metaspace()
        made.pre_tokenizer = mark if rules == "Unigram" else pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.Metaspace() if rules == "Unigram" else decoders.WordPiece()
        kind = getattr(trainers, f"{rules}Trainer")
        more = {"unk_token": "<unk>"} if rules == "Unigram" else {}
        made.train_from_iterator(CORPUS, kind(special_tokens=special, **more, **quiet))
    else:
        small = tokenizers.Tokenizer(models.BPE())
        small.pre_tokenizer = pre_tokenizers.Metaspace()
        small.train_from_iterator(CORPUS, trainers.BpeTrainer(**quiet))
        trained = json.loads(small.to_str())["model"]
        names = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *trained["vocab"]]
        ids = {name: id_ for id_, name in enumerate(dict.fromkeys(names))}
        merges = [tuple(pair) for pair in trained["merges"]]
        pieces = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
        made = tokenizers.Tokenizer(models.BPE(ids, merges, **pieces))
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        made.normalizer = normalizers.Replace(" ", "▁")
        if rules == "Prepend":
            made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), made.normalizer])
            steps.append(decoders.Strip(" ", 1, 0))
        made.decoder = decoders.Sequence(steps)
        made.add_special_tokens(special)
    if start := next((name for name in ("<s>", "<bos>", "<BOS_TOKEN>") if name in special), None):
        template = [(start, made.token_to_id(start))]
        made.post_processor = processors.TemplateProcessing([start, "$A"], None, template)
    return made


def write_tokenizer(case, folder):
    kind, named, *_ = CASES[case]
    folder.mkdir()
    library(case).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    ends = [name for name in ("</s>", "<eos>", "<|im_end|>") if name in CASES[case][-1]]
    settings = {"eos_token": ends[0]} if ends else {}
    settings |= {"tokenizer_class": named} if named else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_tokenizers_have_the_ids_of_transformers_in_and_out(tmp_path, case):
    folder = write_tokenizer(case, tmp_path / "theirs")
    theirs = opened(folder)
    ours = load_tokenizer(folder, special_tokens="file")
    assert certify_tokenizer(ours, folder)["tokenizer_ids"].get("first") is None
    folders = [theirs]
    for name in {"roberta": ("roberta", "bart"), "modernbert": ("modernbert",)}.get(case, ()):
        again = tmp_path / name
        again.mkdir()
        for file, content in FAMILIES[name].tokenizer_files(ours, max_len=64).items():
            (again / file).write_bytes(content)
        folders.append(opened(again))
        pair = folders[-1](TEXTS[0], TEXTS[1])
        assert pair.keys() == {"input_ids", "attention_mask"}
        assert pair.input_ids == theirs(TEXTS[0], TEXTS[1]).input_ids or case == "modernbert"
        assert folders[-1].pad_token_id == ours.pad_id
    if case == "roberta":
        model = build(config_of("bart", vocab_size=ours.vocab_size, max_len=64), seed=0)
        spec = TaskSpec((TASKS["sst2"],), "text", 64)
        export_huggingface(TextModel(model, ours, spec), tmp_path / "tuned")
        assert opened(tmp_path / "tuned")("the").input_ids == [*ours.encode(b"the"), ours.sep_id]
        # Whatever the file puts around a text.
        first, second = (ours.encode(text.encode()).tolist() for text in TEXTS[:2])
        between = [ours.sep_id] * ours.n_separators
        row = [ours.cls_id, *first, *between, *second, ours.sep_id]
        assert row == theirs(*TEXTS[:2]).input_ids
    if len(folders) == 1:
        ours = with_start(ours, folder)
        around = [] if ours.start_id is None else [ours.start_id]
        assert theirs("the").input_ids == [*around, *ours.encode(b"the").tolist()]
        again = tmp_path / "again"
        again.mkdir()
        (again / "config.json").write_text('{"model_type": "gpt2"}')
        for name, content in decoder_files(ours, max_len=64).items():
            (again / name).write_bytes(content)
        folders.append(opened(again))
        assert folders[1].eos_token_id == ours.end_id
    for text in TEXTS:
        ids = ours.encode(text.encode()).tolist()
        for each in folders:
            assert each(text, add_special_tokens=False).input_ids == ids, text
            plain = each.decode(ids, skip_special_tokens=True)
            assert ours.decode(ids).decode("utf-8", "replace") == plain or ours.reads_marks, text


@pytest.mark.parametrize("case", ["llama", "gemma", "unigram", "neox", "llama 3"])
def test_pieces_count_the_bytes_of_a_text_and_a_stream_keeps_its_spaces(tmp_path, case):
    tokenizer = load_tokenizer(write_tokenizer(case, tmp_path / "folder"), special_tokens="file")
    text = "the cat sat on the mat" + ("" if case == "unigram" else " 🙂 日本 x")
    ids = tokenizer.encode(text.encode()).tolist()
    added = 0 if case in ("gemma", "neox", "llama 3") else 1  # a space before the first word
    assert tokenizer.token_bytes[ids].sum() == len(text.encode()) + added
    stream = Continuation(tokenizer, [])
    for id_ in ids:
        stream.add(id_)
    stream.end()
    assert stream.text == " " * added + text
    assert tokenizer.decode_after([*ids, 10**6]).decode() == stream.text + "\ufffd"


CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def published(folder, **changes):
    """Write a decoder with Llama's tokenizer, a chat template and defaults of generation."""
    tiny("gpt2", dtype=torch.float32, vocab_size=700, **changes).save(folder)
    config = read_json(folder / "config.json")
    write_tokenizer("llama", folder.with_name("files"))
    for path in folder.with_name("files").iterdir():
        shutil.copy(path, folder / path.name)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(CHAT)
    content = {"eos_token_id": [2, 7, 9, 10**6], "temperature": 0.6, "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(content))
    return folder


def test_starts_stops_and_chat_templates_survive(tmp_path):
    from transformers import AutoModelForCausalLM, GenerationConfig

    certificate = import_huggingface(published(tmp_path / "theirs"), tmp_path / "ours")
    assert "temperature" in certificate["kept"] and "never run" in certificate["kept"]
    model = load(tmp_path / "ours")
    assert (model.end_ids, model.generation.stop_ids) == ({2, 7, 9}, (7, 9))
    assert model.generation.chat_templates == {"default": CHAT}
    ids = encode_prompt(model.tokenizer, "the cat")
    export_huggingface(model, tmp_path / "back")
    tokenizer = opened(tmp_path / "back")
    assert tokenizer("the cat").input_ids == ids and ids[0] == model.tokenizer.start_id == 1
    assert tokenizer.chat_template == CHAT and tokenizer.bos_token_id == 1
    said = GenerationConfig.from_pretrained(tmp_path / "back")
    assert (said.eos_token_id, said.bos_token_id, said.temperature) == ([2, 7, 9], 1, 0.6)
    import_huggingface(tmp_path / "back", tmp_path / "again")
    assert load(tmp_path / "again").generation.stop_ids == (7, 9)
    stream = Continuation(model.tokenizer, [], ends=model.end_ids)
    for id_ in [ids[1], 9, ids[2]]:
        stream.add(id_)
    assert stream.is_over and stream.text == " the"
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert theirs.generation_config.eos_token_id == [2, 7, 9]


TEMPLATES = [{"name": "default", "template": "a"}, {"name": "tools", "template": "b"}]


@pytest.mark.parametrize("place", ["settings", "files"])
def test_several_chat_templates_are_kept_by_name(tmp_path, place):
    folder = published(tmp_path / "theirs")
    if place == "settings":
        (folder / "chat_template.jinja").unlink()
        settings = {**read_json(folder / "tokenizer_config.json"), "chat_template": TEMPLATES}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        (folder / "chat_template.jinja").write_text("a")
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tools.jinja").write_text("b")
    import_huggingface(folder, tmp_path / "ours")
    export_huggingface(load(tmp_path / "ours"), tmp_path / "back")
    assert opened(tmp_path / "back").chat_template == {"default": "a", "tools": "b"}


@pytest.mark.parametrize("file, content, error", [
    ("generation_config.json", '{"eos_token_id": "two"}', CheckpointError),
    ("generation_config.json", "[]", CheckpointError),
    ("tokenizer_config.json", '{"chat_template": 3}', DataError),
    ("tokenizer_config.json", '{"chat_template": [{"name": "a"}]}', DataError),
])  # fmt: skip
def test_damaged_settings_of_generation_are_refused(tmp_path, file, content, error):
    folder = published(tmp_path / "theirs")
    (folder / "chat_template.jinja").unlink()
    (folder / file).write_text(content)
    check_refused(folder, file, error)


def test_a_certificate_leaves_the_model_as_it_was(tmp_path):
    read, family, settings, tensors, _ = _read(published(tmp_path / "theirs"))
    model, before = read.model.train(), {k: v.clone() for k, v in read.model.state_dict().items()}
    oracle = family.oracle(model.config)
    assert certify(model, settings.computed, tensors, oracle)["checked"] and model.training
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    model(torch.zeros(1, 3, dtype=torch.long)).logits.sum().backward()


EXPORTED = Exported("", {"checked": False, "reason": "nothing"}, True, "some.load('x')")
CARDS = {"causal": "text-generation", "masked": "fill-mask", "span": None}
CARDS |= {"pair": "text-classification", "questions": "question-answering"}
CARDS |= {"translation": "translation"}
UNITS = {"causal": "nats per token", "masked": "nats per masked token"}
UNITS |= {"span": "nats per target token", "translation": "nats per token"}


@pytest.mark.parametrize("kind", rows(CARDS, 2))
def test_the_card_of_a_run_has_its_recipe_checksums_and_scores(tmp_path, made, kind):
    run = made(kind)
    common = {"name": "x", "library": "onnx"}
    write_card(tmp_path, load(run), EXPORTED, source=run / "model", license_name="a: b", **common)
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    data, record = card.data.to_dict(), read_json(run / "record.json")
    assert (data["library_name"], data["license"]) == ("onnx", "a: b")
    assert data.get("pipeline_tag") == CARDS[kind] and data["tags"] == ["sublayer"]
    assert data.get("language") == (["en", "de"] if kind == "translation" else None)
    assert all(checksum in card.content for checksum in record["data"]["checksums"].values())
    loss, unit = record["valid"].get("loss"), UNITS.get(kind)
    title = "loss" if unit is None else f"loss ({unit})"
    scored = f"| validation | {title} | {loss or 0:.4g} | no interval: items were not kept |"
    assert scored in card.content or loss is None
    assert str(tmp_path) not in card.content and str(run.parent) not in card.content
    assert "n_heads" in card.content and "not checked against" in card.content
    write_card(tmp_path, load(run), EXPORTED, source=run, is_average=True, **common)
    assert "## Evaluation" not in (tmp_path / "README.md").read_text()


def test_the_card_of_a_scored_run_has_intervals_over_its_items(tmp_path, made):
    run = shutil.copytree(made("causal"), tmp_path / "run")
    nats = np.random.default_rng(0).uniform(10.0, 30.0, 40)
    columns = {"nats": nats, "tokens": np.full(40, 10), "bytes": np.full(40, 20)}
    table = ItemTable("window", "0" * 64, columns, None)
    write_items(run, Items("test", "0" * 64, {"windows": table}), {})
    scores = {"loss": nats.mean() / 10, "bits_per_byte": nats.mean() / 20 / np.log(2)}
    (run / "test.json").write_text(json.dumps(scores))
    write_card(tmp_path, load(run), EXPORTED, name="x", library="onnx", source=run)
    half = stats.t.ppf(0.975, 39) * nats.std(ddof=1) / 40**0.5 / 10
    loss, text = scores["loss"], (tmp_path / "README.md").read_text()
    around = f"{loss - half:.4g} to {loss + half:.4g}"
    assert f"| test | loss (nats per token) | {loss:.4g} | {around} |" in text
    assert f"| bits_per_byte (bits per byte) | {scores['bits_per_byte']:.4g} | " in text
    assert "runs with other seeds differ" in text


def test_an_export_has_a_card(tmp_path, made):
    sublayer.export(made("causal"), tmp_path / "out", license="mit")
    text = (tmp_path / "out" / "README.md").read_text()
    loading = ("tokenizer = transformers.AutoTokenizer", "model = transformers.GPT2LMHeadModel")
    assert all(f"\n{line}.from_pretrained('out')\n" in text for line in loading)
    assert "largest difference" in text and str(tmp_path) not in text


def test_the_interval_of_a_score_is_students_over_documents():
    columns = {
        "nats": np.array([0.0, 100.0, 100.0, 100.0, 300.0, 600.0]),
        "tokens": np.array([0, 100, 100, 0, 200, 200]),
    }
    table = ItemTable("window", "0" * 64, columns, np.array([0, 0, 1, 1, 2, 2]))
    items = Items("test", "0" * 64, {"windows": table})
    rule = quotient_of(EvaluatedMetric(table="windows", columns=("nats", "tokens")))
    # Documents have nats - 2 tokens of -100, 0 and 100: an error of sqrt(3) / 6, and t of 4.3027.
    assert _interval(items, rule, 2.0, 1.0) == "0.7579 to 3.242"
    assert _interval(items, rule, 2.0, 100.0) == "75.79 to 324.2"
    assert _interval(items, rule, 2.5, 1.0) == "" == _interval(items, None, 2.0, 1.0)
    assert _interval(None, rule, 2.0, 1.0) == "no interval: items were not kept"
    # Large documents count for more, with fewer degrees of freedom (unequal_units).
    shares = np.array([2.0, 2.0, 4.0]) / 8
    factors, freedom = unequal_units(shares)
    more = {name: np.append(column, [0, 0]) for name, column in columns.items()}
    table = ItemTable("window", "0" * 64, more, np.array([0, 0, 1, 1, 2, 2, 2, 2]))
    half = stats.t.ppf(0.975, freedom) * np.linalg.norm(factors * [-1, 0, 1]) / 6 * 1.5**0.5
    around = f"{2.0 - half:.4g} to {2.0 + half:.4g}"
    assert _interval(Items("test", "0" * 64, {"windows": table}), rule, 2.0, 1.0) == around
