"""Small models of every kind that answer tasks, with their tokenizers."""

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.model.transformer import build
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel
from tests.interop.tiny import with_random_vectors

TRAINING = [
    b"a film that the cat would not sit through; the dog ran from it, over the mat and the field.",
    b"it is the best of them all, and everyone who saw it smiled; nothing of it was wrong.",
] * 9
CONTEXT = 64
ENCODER = {"kind": "encoder", "norm_order": "post", "embedding_norm": "affine", "segments": "both"}
ENCODER["head"] = "none"
ALBERT = {**ENCODER, "share": "all", "d_embed": 6, "embedding_projection": "sum"}
T5 = {"kind": "encoder-decoder", "norm": "rms", "positions": "relative", "bias": False}
SHAPES = {
    "bert": ENCODER, "albert": ALBERT, "gpt2": {"head": "none"},
    "gpt1": {"norm_order": "post", "d_ff": 48},
    "t5": {**T5, "attention_scale": "none", "decoder_start": "pad"},
}  # fmt: skip
TOKENIZERS = {"bert": "wordpiece", "gpt2": "bpe", "gpt1": "bpe"}
TOKENIZERS |= {"albert": "unigram", "t5": "unigram"}
FORMATS = {"bert": "pair", "albert": "pair", "gpt2": "traversal", "gpt1": "traversal", "t5": "text"}


def model_for(name, task, **fields):
    """Build a model of random weights, biases included, that answers a task."""
    heads = {}
    if name != "t5":
        heads = {"label_outputs": max(1, len(task.labels))}
        if task.kind == "span":
            heads = {"span_head": "independent"}
        elif FORMATS[name] != "traversal":
            heads["pooler"] = "tanh"
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_ff": 17, "init_std": 0.3}
    config = ModelConfig.model_validate({**sizes, **SHAPES[name], **heads, **fields})
    reads_traversals = FORMATS[name] == "traversal"
    rules = {"vocab_size": 270 if reads_traversals else 60, "sentinels": 4 * (name == "t5")}
    tokenizer = train_tokenizer(TOKENIZERS[name], TRAINING, **rules)
    if reads_traversals:
        tokenizer = tokenizer.with_names(TRAVERSAL_NAMES)
    model = build(resolve_model(config, vocab_size=tokenizer.vocab_size, context=CONTEXT), seed=5)
    spec = TaskSpec((task,), FORMATS[name], CONTEXT, target_length=8 if name == "t5" else 0)
    return TextModel(with_random_vectors(model, std=0.2), tokenizer, spec)
