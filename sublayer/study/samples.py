"""Text samples of a decoder study: each arm's continuation of the same prompt."""

import codecs
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from sublayer.data.prepare import Data
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.files.parsing import check_typed, read_json
from sublayer.files.storage import write_json
from sublayer.runs.folder import MODEL
from sublayer.study.arms import Arm
from sublayer.study.inspection import LAYERS, Inspecting, read_layers
from sublayer.study.results import ArmResult, WrittenSample
from sublayer.study.runs import Runs
from sublayer.study.stages import PRETRAINING

SAMPLE = "sample.json"
TEMPERATURE = 0.8
SEED = 0
_PROMPT_BYTES = 60
_MAX_BYTES = 180
"""Bytes of a continuation, and most tokens: about two lines."""


def draw_samples(
    arms: Sequence[Arm], runs: Runs, data: Mapping[str, Data], *, device: str | None
) -> None:
    """Write a continuation by each arm's first finished decoder; keep it in the run's folder.

    The prompt is the beginning of the baseline's test split; an arm whose runs have lost their
    models writes nothing. ``device`` is as on the command line. Raises CheckpointError for a
    damaged model.
    """
    recipe = arms[0].loaded.recipe
    if recipe.objective.kind != "causal":
        return
    test = data[arms[0].name].test
    assert test is not None, "a comparison without a test split is refused"
    prompt = prompt_of(test, recipe.data.context)
    shown = prompt.decode("utf-8", "replace")
    for arm in arms:
        scored = (outcome.path for _, _, outcome in runs[arm.name, PRETRAINING].scored())
        run = next((path for path in scored if (path / MODEL).exists()), None)
        if run is None:
            continue
        kept = _read(run)
        if kept is None or kept.prompt != shown:
            tokenizer = data[arm.name].tokenizer
            context = arm.loaded.recipe.data.context
            text = continuation(run, prompt, tokenizer, context=context, device=device)
            write_json(run / SAMPLE, asdict(WrittenSample(shown, text)))


def with_kept(
    arms: Sequence[ArmResult], runs: Runs, inspecting: Inspecting | None
) -> tuple[ArmResult, ...]:
    """Return the arms with the sample and the inspected layers from their runs' folders.

    Nothing is sampled or inspected. Raises CheckpointError if layers are damaged.
    """
    results = []
    for arm in arms:
        outcomes = dict(runs[arm.name, PRETRAINING].seeded())
        samples = (_read(outcome.path) for outcome in outcomes.values() if outcome.test is not None)
        layers = {
            seed: of_run
            for seed, outcome in outcomes.items()
            if inspecting is not None
            and (of_run := read_layers(outcome.path, inspecting)) is not None
        }
        if len({len(of_run.changes) for of_run in layers.values()}) > 1:
            raise CheckpointError(
                f"{LAYERS} of {arm.name} is damaged in one of its runs, which differ in their "
                "blocks: remove these files, and the same command makes them anew"
            )
        results.append(replace(arm, sample=next(filter(None, samples), None), layers=layers))
    return tuple(results)


def prompt_of(test: Split, context: int) -> bytes:
    """Return the beginning of a test split's first document, up to the end of a word."""
    n_tokens = min(_PROMPT_BYTES, max(1, context // 2))
    start = int(test.document_starts[0])
    ids = test.ids[start : start + n_tokens]
    text = test.tokenizer.decode(ids)[:_PROMPT_BYTES]
    head, _, _ = text.rpartition(b" ")
    return head or text


def _read(run: Path) -> WrittenSample | None:
    try:
        content = read_json(run / SAMPLE, CheckpointError)
        return check_typed(content, WrittenSample, SAMPLE, CheckpointError, has_tuples=True)
    except (FileNotFoundError, CheckpointError):
        return None  # sampled again, with the same result


def continuation(
    run: Path,
    prompt: bytes,
    tokenizer: Tokenizer | None = None,
    *,
    context: int,
    device: str | None,
) -> str:
    """Continue a prompt by a run's decoder; empty if neither folder nor call has a tokenizer.

    ``device`` is as on the command line.
    """
    import torch

    from sublayer.decode.sample import Sampling, generate
    from sublayer.loading import load
    from sublayer.model.transformer import Decoder
    from sublayer.system.machine import choose_device

    chosen = choose_device(device)
    text_model = load(run, device=chosen)
    model = text_model.model
    assert isinstance(model, Decoder), "causal objectives train decoders"
    tokenizer = tokenizer or text_model.tokenizer
    if tokenizer is None:
        return ""
    ids = tokenizer.encode(prompt).tolist()[-context:]
    row = torch.tensor([ids], device=chosen)
    sampling = Sampling(TEMPERATURE)
    steps = generate(model, row, _MAX_BYTES, sampling, seed=SEED, window="rolling", context=context)
    return _decoded(tokenizer, (int(step[0]) for step in steps))


def _decoded(tokenizer: Tokenizer, tokens: Iterator[int]) -> str:
    """Decode tokens up to ``_MAX_BYTES``, or the document's end; drop a partial last character."""
    data = b""
    for token in itertools.takewhile(lambda token: token != tokenizer.end_id, tokens):
        data += tokenizer.decode([token])
        if len(data) >= _MAX_BYTES:
            break
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data[:_MAX_BYTES])
