"""Whether runs that exist can be compared: by one metric, on one text, with one tokenizer."""

from collections.abc import Sequence
from typing import Any

from sublayer.config.data import DataConfig
from sublayer.config.fields.messages import setting_in_words, show_path
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.errors import ConfigError
from sublayer.study.recorded import Recorded

_OF_TOKENIZER = {
    *("tokenizer", "vocab_size", "merges", "normalization"),
    *("keep_accents", "special_tokens", "sentinels"),
}
_OF_BATCHES = {
    *("watch", "batch_multiple", "batch_order", "batch_parts"),
    *("context", "windows", "boundaries"),
}
"""What changes neither a text nor its tokens."""
_NAMES = {
    "train": "training texts",
    "valid": "validation texts",
    "test": "test texts",
    "tokenizer": "tokenizers",
}


def check_agree(runs: Sequence[Recorded]) -> None:
    """Raise ConfigError where two runs do not compare, with the settings that keep them apart."""
    first = runs[0]
    for run in runs[1:]:
        both = f"{first.path} and {run.path} do not compare"
        kinds = first.recipe.objective.kind, run.recipe.objective.kind
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"{both}: objective.kind = {kinds[0]} and {kinds[1]} have other metrics"
            )
        formats = _format(first), _format(run)
        if formats[0] != formats[1]:
            raise ConfigError(
                f"{both}: objective.format = {formats[0]} and {formats[1]} write examples for "
                "other kinds of model: `sublayer compare` of their recipes trains and compares both"
            )
        before, now = first.checksums, run.checksums
        for name, what in _NAMES.items():
            if before.get(name) != now.get(name):
                raise ConfigError(f"{both}: their {what} differ, {_why(first, run, name)}")


def _format(run: Recorded) -> str:
    objective = run.recipe.objective
    return objective.format if isinstance(objective, SupervisedObjective) else ""


def _why(first: Recorded, second: Recorded, name: str) -> str:
    """Say in which settings two runs differ, those first that decide what differs."""
    fields = [each for each in DataConfig.model_fields if each not in _OF_BATCHES]
    of_tokenizer = [each for each in fields if each in _OF_TOKENIZER]
    of_text = [each for each in fields if each not in _OF_TOKENIZER]
    # A tokenizer is trained on the text.
    for part in (of_tokenizer, of_text) if name == "tokenizer" else (of_text,):
        differing = [each for each in part if _value(first, each) != _value(second, each)]
        if len(differing) == 1 and _value(first, differing[0]) is not None:
            # The field is named once.
            own, other = (show_path(_value(run, differing[0])) for run in (first, second))
            return f"data.{differing[0]} = {own} and {other}"
        if differing:
            return f"{_settings(first, differing)} and {_settings(second, differing)}"
    return "though their settings are equal: a file has changed between them"


def _settings(run: Recorded, names: Sequence[str]) -> str:
    """Format what a run has of some fields; those that it does not have where it has none."""
    told = [setting_in_words(f"data.{name}", _value(run, name)) for name in names]
    own = [text for text, name in zip(told, names, strict=True) if _value(run, name) is not None]
    return ", ".join(own or told)


def _value(run: Recorded, name: str) -> Any:
    return getattr(run.recipe.data, name)
