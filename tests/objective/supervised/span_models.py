"""Questions of random words about passages of random words, and small encoders with span heads."""

from typing import Any

import numpy as np

from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.marks import Marks
from sublayer.data.tasks.span_encoding import WindowRule, encode_passages
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.model.encoder import Encoder
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.registry import TASKS
from tests.encoders import encoder_of

CONTEXT = 20
WORDS = [f"w{n}" for n in range(23)]
TOKENIZER = WordTokens(WORDS)
MARKS = Marks(TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.sep_id, TOKENIZER.sep_id)
RULE = RowRule("pair", MARKS, CONTEXT)


def questions(n: int, seed: int = 0, *, has_unanswerable: bool = False) -> list[Example]:
    """Draw questions about passages of up to 30 words; every third has no answer, where asked."""
    generator = np.random.default_rng(seed)
    examples = []
    for number in range(n):
        words = generator.choice(WORDS, size=int(generator.integers(3, 30))).tolist()
        asked = generator.choice(WORDS, size=int(generator.integers(1, 6))).tolist()
        first = int(generator.integers(len(words)))
        last = int(generator.integers(first, min(len(words), first + 3)))
        start = len(" ".join([*words[:first], ""]))
        answers = [Answer(" ".join(words[first : last + 1]), start)]
        if has_unanswerable and number % 3 == 2:
            answers = []
        fields = {"context": " ".join(words), "question": " ".join(asked)}
        examples.append(Example(str(number), fields, answers=tuple(answers)))
    return examples


def encoded_questions(examples: list[Example], name: str, *, trains: bool) -> SpanExamples:
    """Encode them in windows of a row of ``CONTEXT`` tokens."""
    rule = WindowRule(CONTEXT, stride=5)
    return encode_passages(TASKS[name], examples, TOKENIZER, rule, trains=trains)


def span_model(name: str, **fields: Any) -> Encoder:
    """Build an encoder in float64 with the head of a task."""
    head = "joint" if TASKS[name].has_unanswerable else "independent"
    heads = {"head": "none", "head_bias": False, "pooler": "none", "sentence_classes": 0}
    return encoder_of(TOKENIZER.vocab_size, CONTEXT, **heads, span_head=head, **fields)


def packed(encoded: SpanExamples, numbers: Any = None):
    """Pack examples, all without ``numbers``."""
    numbers = np.arange(len(encoded)) if numbers is None else np.asarray(numbers)
    return Assembler(encoded, RULE).pack(numbers)
