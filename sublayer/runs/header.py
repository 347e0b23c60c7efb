"""The header of a run: its text, model, machine, length and folder, before the first step."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.config.rules import fills_steps
from sublayer.config.texts import watched_texts
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.data.split import Split
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.estimate.cost import count_parameters
from sublayer.files.paths import as_typed
from sublayer.objective.families import family_of
from sublayer.runs.pace import recall_run_pace
from sublayer.runs.session import Session
from sublayer.runs.small_test import describe_small_test
from sublayer.system.stage_displays import format_seconds

_WIDTH = 80
_LABEL = 11
_MOST_SOURCES = 3
_NAMES = {"valid": "validation", "test": "test"}
"""What the rows of splits are called that have files of their own."""


def list_header(session: Session, folder: Path, *, done: int) -> list[str]:
    """Return the lines of a run's header; ``done`` are the steps of before, where it resumes."""
    recipe = session.recipe
    parameters = count_parameters(recipe.model, recipe.objective).total
    rows = [
        *text_rows(recipe, session.data),
        ("model", f"{recipe.model.kind}, {count(parameters, 'parameter')}"),
        ("device", _device(session)),
        ("batch", _batch(session)),
        ("length", _length(session, done)),
        ("folder", str(folder)),
        ("expected", _expected(session, done)),
    ]
    return lay_out(rows)


def text_rows(recipe: Recipe, data: Data) -> list[tuple[str, str]]:
    """Return what a header says of a text: its size, how it is divided, its tokenizer."""
    unit, languages = "document", ""
    if recipe.data.is_parallel:
        unit, languages = "pair", f"{recipe.data.source_language} to {recipe.data.target_language}"
    elif recipe.data.tasks is not None:
        unit = "example"
    splits = data.splits()
    divided = [split for split in splits if split.sources == data.train.sources]
    # Bytes of one document are in every split.
    n_whole = len(data.train.document_starts) if data.train.is_cut else _n_documents(divided)
    rows = [("text", _size(divided, n_whole, unit, languages))]
    if divided == splits or len(divided) > 1:
        rows.append(("split", _parts(divided, unit)))
    small = describe_small_test(data)
    small_rows = [("", small)] if small else []
    if data.test in divided:
        rows += small_rows
    for split in splits:
        if split not in divided:
            rows.append((_NAMES[split.name], _size([split], _n_documents([split]), unit)))
    if data.test not in divided:
        rows += small_rows
    watched = watched_texts(recipe.data.watch)
    for name, text in data.watched.items():
        rows.append(("watched", _watched(name, watched[name], text)))
    return [*rows, ("tokenizer", _tokenizer(data.tokenizer))]


def lay_out(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lay out names and values in two columns, within the width of a narrow terminal."""
    lines = []
    for name, value in rows:
        lines += textwrap.wrap(
            value,
            _WIDTH,
            initial_indent=f"{name:<{_LABEL}}",
            subsequent_indent=" " * _LABEL,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _size(splits: Sequence[Split], n_documents: int, unit: str, languages: str = "") -> str:
    """Name where splits come from, and say how large they are together."""
    n_bytes = sum(split.store.n_bytes for split in splits)
    size = count(n_bytes, "byte")
    if unit == "example":
        size = count(sum(len(split.ids) for split in splits), "token")
    said = [count(n_documents, unit), languages, size]
    return f"{_sources(splits[0].sources)}: {', '.join(filter(None, said))}"


def _parts(splits: Sequence[Split], unit: str) -> str:
    """Say how much of a text each of its splits has, and what for."""
    sizes = [len(split.document_starts) for split in splits]
    if splits[0].is_cut:
        sizes, unit = [split.store.n_bytes for split in splits], "byte"
    parts = " / ".join(f"{size:,}" for size in sizes)
    plural = "" if sizes == [1] else "s"
    return f"{parts} {unit}{plural} to {_uses([split.name for split in splits])} on"


def _n_documents(splits: Sequence[Split]) -> int:
    return sum(len(split.document_starts) for split in splits)


def _sources(names: Sequence[str]) -> str:
    named = ", ".join(map(as_typed, names[:_MOST_SOURCES]))
    left = len(names) - _MOST_SOURCES
    return f"{named} and {left} more" if left > 0 else named


def _watched(name: str, source: str, text: Split) -> str:
    sizes = [count(_n_documents([text]), "document"), count(text.store.n_bytes, "byte")]
    return f"{as_typed(source)} as {name}: {', '.join(sizes)}"


def _tokenizer(tokenizer: Tokenizer) -> str:
    kind = tokenizer.kind
    if isinstance(tokenizer, BilingualTokenizer):
        kind = f"{tokenizer.vocabulary.kind} of both languages"
    return f"{kind}, {count(tokenizer.vocab_size, 'id')}"


def _uses(splits: Sequence[str]) -> str:
    """Say what splits are for, as in ``train, validate and test``."""
    *others, last = [{"valid": "validate"}.get(split, split) for split in splits]
    return f"{', '.join(others)} and {last}" if others else last


def _device(session: Session) -> str:
    train = session.recipe.train
    words = [str(session.place.device), train.precision, count(train.threads, "thread")]
    if session.place.world.size > 1:
        words.append(count(session.place.world.size, "process"))
    return ", ".join(words)


def _batch(session: Session) -> str:
    recipe = session.recipe
    train = recipe.train
    context = recipe.data.context
    n_tokens = train.batch_sequences * context
    batches = session.train_step.batches
    if isinstance(batches, ExampleBatches) and batches.rule.fills_rows:
        rows = f"{count(train.batch_sequences, 'row')} of {context:,}"
        n_first = len(batches.chosen(0))
        return f"{n_tokens:,} tokens a step: {rows}, {count(n_first, 'example')} in the first"
    if recipe.data.tasks is not None:
        return f"{count(train.batch_sequences, 'example')} a step, of up to {context:,} tokens each"
    if fills_steps(recipe):
        n_tokens = train.batch_tokens or n_tokens
        return f"{n_tokens:,} tokens a step, in pairs of similar length up to {context:,} tokens"
    micro = min(train.micro_batch_sequences, train.batch_sequences)
    sequences = count(train.batch_sequences, "sequence")
    return f"{n_tokens:,} tokens a step: {sequences} of {context:,}, {micro:,} at a time"


def _length(session: Session, done: int) -> str:
    recipe = session.recipe
    steps = recipe.train.steps
    epoch_tokens = family_of(recipe.objective).epoch_tokens(recipe, session.data.train)
    epochs = steps * recipe.train.batch_sequences * recipe.data.context / max(1, epoch_tokens)
    text = f"{count(steps, 'step')}, {count(epochs, 'epoch', '.3g')}"
    return f"{text}; resumes at step {done:,}" if done else text


def _expected(session: Session, done: int) -> str:
    recipe = session.recipe
    left = recipe.train.steps - done
    step_s = recall_run_pace(recipe, session.place)
    if step_s is not None:
        return f"about {format_seconds(left * step_s)}, as a run of this size took before"
    if recipe.train.minutes is not None:
        share = left / recipe.train.steps
        return f"about {format_seconds(60 * share * recipe.train.minutes)}"
    return "known after the first steps"
