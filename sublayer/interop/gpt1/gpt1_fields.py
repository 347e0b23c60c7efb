"""What a config.json may say to GPT-1's class of transformers, OpenAIGPT."""

from sublayer.config.limits import LARGEST_VOCABULARY, LONGEST_WINDOW
from sublayer.interop.gpt2.gpt2_fields import ALIASES, IGNORED, SHARED
from sublayer.interop.huggingface.class_fields import ClassFields, Field, names
from sublayer.interop.values import one_of, whole

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
"""The class's names of activations, by those that transformers has elsewhere: its GELU is that by
tanh."""

GPT1_FIELDS = ClassFields(
    title="OpenAIGPTConfig",
    fields={
        **SHARED,
        "vocab_size": Field(40478, whole(LARGEST_VOCABULARY)),
        "n_positions": Field(512, whole(LONGEST_WINDOW)),
        "afn": Field("gelu", one_of(ACTIVATIONS)),
    },
    aliases=ALIASES,
    ignored=IGNORED | names("n_special predict_special_tokens"),
)
