"""The header of a run before its first step, and its record after the last."""

import hashlib
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sublayer.config.data import watched_texts
from sublayer.config.recipe import Recipe
from sublayer.config.rules import fills_steps
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.data.store import Split
from sublayer.data.tasks.batches import ExampleBatches, TaskSplit
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.files.storage import as_typed
from sublayer.objective.family import family_of
from sublayer.runs.folder import RECIPE
from sublayer.runs.resume import read_began, read_lengthenings, read_replanned
from sublayer.runs.session import Session, recall_run_pace
from sublayer.system.machine import describe_machine
from sublayer.system.stages import format_seconds
from sublayer.training.checkpoints import LoopState
from sublayer.training.speed import describe_use

_FEW = 10
"""Number of documents below which a test split is small."""
_WIDTH = 80
_LABEL = 11
_MOST_SOURCES = 3
_NAMES = {"valid": "validation", "test": "test"}
"""Row names of splits with separate files."""
_LIBRARIES = ("sublayer", "numpy", "safetensors", "sentencepiece", "tokenizers")


def describe_small_test(data: Data) -> str | None:
    """Return a sentence on a test split of few documents or pairs; None if there are enough."""
    test = data.test
    if test is None:
        return None
    n = len(test.document_starts)
    if n >= _FEW:
        return None
    if test.read_pairs is not None:
        return (
            f"the test split has only {count(n, 'pair')} of texts: scores on other texts may differ"
        )
    unit = "example" if isinstance(test, TaskSplit) else "document"
    items = f"one {unit}" if n == 1 else f"{n} {unit}s"
    if test.is_cut:
        return (
            f"the test split is {'part' if n == 1 else 'parts'} of {items}, the rest of which is "
            f"trained on: scores on other {unit}s may differ"
        )
    return f"the test split has only {items}: scores on other {unit}s may differ"


def list_header(session: Session, folder: Path, *, done: int) -> list[str]:
    """Return the lines of a run's header; ``done`` are the steps before a resume."""
    recipe, setup = session.recipe, session.place
    parameters = count_parameters(recipe.model, recipe.objective).total
    device = [str(setup.device), recipe.train.precision, count(recipe.train.threads, "thread")]
    if setup.world.size > 1:
        device.append(count(setup.world.size, "process"))
    steps, left = recipe.train.steps, recipe.train.steps - done
    epoch_tokens = family_of(recipe.objective).epoch_tokens(recipe, session.data.train)
    epochs = steps * recipe.train.batch_sequences * recipe.data.context / max(1, epoch_tokens)
    length = f"{count(steps, 'step')}, {count(epochs, 'epoch', '.3g')}"
    step_s = recall_run_pace(recipe, setup)
    expected = "known after the first steps"
    if step_s is not None:
        expected = f"about {format_seconds(left * step_s)}, as a run of this size took before"
    elif recipe.train.minutes is not None:
        expected = f"about {format_seconds(60 * left / steps * recipe.train.minutes)}"
    rows = [
        *text_rows(recipe, session.data),
        ("model", f"{recipe.model.kind}, {count(parameters, 'parameter')}"),
        ("device", ", ".join(device)),
        ("batch", _batch(session)),
        ("length", f"{length}; resumes at step {done:,}" if done else length),
        ("folder", str(folder)),
        ("expected", expected),
    ]
    return lay_out(rows)


def text_rows(recipe: Recipe, data: Data) -> list[tuple[str, str]]:
    """Return the rows of a header on a text: its size, its splits, its tokenizer."""
    unit, languages = "document", ""
    if recipe.data.is_parallel:
        unit, languages = "pair", f"{recipe.data.source_language} to {recipe.data.target_language}"
    elif recipe.data.tasks is not None:
        unit = "example"
    splits, train = data.splits(), data.train
    divided = [split for split in splits if split.sources == train.sources]
    # A single document has bytes in every split.
    n_whole = len(train.document_starts) if train.is_cut else _n_documents(divided)
    rows = [("text", _size(divided, n_whole, unit, languages))]
    if divided == splits or len(divided) > 1:
        rows.append(("split", _parts(divided, unit)))
    others = [split for split in splits if split not in divided]
    of_others = [
        (_NAMES[split.name], _size([split], _n_documents([split]), unit)) for split in others
    ]
    small = describe_small_test(data)
    small_rows = [("", small)] if small else []
    rows += [*of_others, *small_rows] if data.test in others else [*small_rows, *of_others]
    for name, text in data.watched.items():
        source = as_typed(watched_texts(recipe.data.watch)[name])
        sizes = f"{count(_n_documents([text]), 'document')}, {count(text.store.n_bytes, 'byte')}"
        rows.append(("watched", f"{source} as {name}: {sizes}"))
    kind = data.tokenizer.kind
    if isinstance(data.tokenizer, BilingualTokenizer):
        kind = f"{data.tokenizer.vocabulary.kind} of both languages"
    return [*rows, ("tokenizer", f"{kind}, {count(data.tokenizer.vocab_size, 'id')}")]


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
    """Name the source of splits, and their total size."""
    n_bytes = sum(split.store.n_bytes for split in splits)
    size = count(n_bytes, "byte")
    if unit == "example":
        size = count(sum(len(split.ids) for split in splits), "token")
    sources = splits[0].sources
    named = ", ".join(map(as_typed, sources[:_MOST_SOURCES]))
    if len(sources) > _MOST_SOURCES:
        named += f" and {len(sources) - _MOST_SOURCES} more"
    parts = [count(n_documents, unit), languages, size]
    return f"{named}: {', '.join(filter(None, parts))}"


def _parts(splits: Sequence[Split], unit: str) -> str:
    """Describe each split's share of a text, and its use."""
    sizes = [len(split.document_starts) for split in splits]
    if splits[0].is_cut:
        sizes, unit = [split.store.n_bytes for split in splits], "byte"
    parts = " / ".join(f"{size:,}" for size in sizes)
    plural = "" if sizes == [1] else "s"
    *others, last = [{"valid": "validate"}.get(split.name, split.name) for split in splits]
    uses = f"{', '.join(others)} and {last}" if others else last
    return f"{parts} {unit}{plural} to {uses} on"


def _n_documents(splits: Sequence[Split]) -> int:
    return sum(len(split.document_starts) for split in splits)


def _batch(session: Session) -> str:
    recipe, train, batches = session.recipe, session.recipe.train, session.train_step.batches
    context, n_rows = recipe.data.context, train.batch_sequences
    begins = f"{n_rows * context:,} tokens a step"
    if isinstance(batches, ExampleBatches) and batches.rule.fills_rows:
        first = count(len(batches.chosen(0)), "example")
        return f"{begins}: {count(n_rows, 'row')} of {context:,}, {first} in the first"
    if recipe.data.tasks is not None:
        return f"{count(n_rows, 'example')} a step, of up to {context:,} tokens each"
    if fills_steps(recipe):
        n_tokens = train.batch_tokens or n_rows * context
        return f"{n_tokens:,} tokens a step, in pairs of similar length up to {context:,} tokens"
    micro = min(train.micro_batch_sequences, n_rows)
    return f"{begins}: {count(n_rows, 'sequence')} of {context:,}, {micro:,} at a time"


def describe_run(
    run: Path, session: Session, state: LoopState, peak_memory_bytes: int | None
) -> dict[str, Any]:
    """Build the record of a finished run, as ``record.json`` keeps it.

    ``valid`` is the training evaluation of the run's model, the best or the last, with scores of
    watched texts, such as ``squad/mlm_accuracy``. ``tokens_per_s`` counts only optimizer steps,
    ``seconds`` also evaluations and checkpoints; ``date`` is the end. Memory is in bytes, without
    the process's before the run. ``stopped_early`` is present if patience ended it before its last
    step. ``minutes`` are the used ones of a recipe's minutes, if any; ``lengthened`` the steps of
    its extensions. ``plan`` has, for a run of a comparison, the hash of its sealed plan and the
    checksum of the code.
    """
    recipe, data = session.recipe, session.data
    began, train = read_began(run), recipe.train
    more: dict[str, Any] = {}
    if state.task_bests:
        more["task_bests"] = state.task_bests
    if session.probes:
        more["probes"] = {
            read.probe.name: {
                "title": read.probe.title,
                "examples": len(read.items.examples),
                "chance": read.probe.chance,
                "chance_error": read.probe.chance_error(len(read.items.examples)),
                "reference": read.probe.reference,
            }
            for read in session.probes
        }
    minutes: dict[str, Any] | None = None
    if train.minutes is not None:
        used = round(state.seconds / 60, 4)
        note = describe_use(train.minutes, state.seconds)
        minutes = {"asked": train.minutes, "used": used, "note": note}
        if replanned := read_replanned(run / RECIPE):
            minutes["replanned"] = [asdict(change) for change in replanned]
    plan: dict[str, Any] = {}
    if began is not None and began.plan is not None:
        plan = {"plan": {"hash": began.plan.get("hash"), "code": code_sha256()}}
    return {
        "run": str(run.absolute()),
        "title": recipe.title,
        "step": state.step,
        "tokens": state.tokens,
        "tokens_per_s": round(state.tokens / state.step_seconds, 1),
        "valid": state.best,
        **more,
        "seconds": round(state.seconds, 3),
        "lengthened": [asdict(change) for change in read_lengthenings(run / RECIPE)],
        **({"stopped_early": True} if state.has_stopped else {}),
        "minutes": minutes,
        "peak_memory_bytes": peak_memory_bytes,
        "parameters": asdict(count_parameters(recipe.model, recipe.objective)),
        "flops_per_token": flops_per_token(recipe.model, recipe.data.context, recipe.objective),
        "precision": train.precision,
        "threads": train.threads,
        "processes": session.place.world.size,
        "machine": describe_machine(session.place.device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in _LIBRARIES},
        "commit": commit(),
        **plan,
        "data": {
            "tokenizer": data.tokenizer.kind,
            "vocab_size": data.tokenizer.vocab_size,
            "checksums": dict(data.checksums),
            **data.sizes(),
            "watched": {name: split.sizes() for name, split in data.watched.items()},
        },
    }


@cache
def code_sha256() -> str:
    """Return the SHA-256 over path and content of the package's Python files, in order.

    Computed once per process, in some 0.03 s.
    """
    package = Path(__file__).parents[1]
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda file: file.relative_to(package).parts):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return total.hexdigest()


def commit() -> str | None:
    """Return the commit of the running source; None outside a checkout of it.

    As ``git describe`` writes it, with ``-dirty`` where tracked files were changed since.
    """
    source = Path(__file__)

    def git(*words: str) -> str:
        command = ["git", "-C", str(source.parent), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout.strip()

    try:
        # An installed package may lie inside another checkout.
        git("ls-files", "--error-unmatch", source.name)
        return git("describe", "--always", "--dirty", "--abbrev=12") or None
    except (OSError, subprocess.SubprocessError):
        return None
