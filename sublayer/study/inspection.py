"""Inspection of a study's runs: measured layers and a text sample, each a file of the run.

Each run is measured and sampled once. Reading imports no PyTorch.
"""

import codecs
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, TypeAdapter

from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.stacks import is_one_block
from sublayer.config.table import MOST_BATCH_TOKENS, MOST_LAYERS, Table
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import Count, check_typed, read_json
from sublayer.files.storage import write_json
from sublayer.inspection.layer_change import LayerChange, finite, mean_changes
from sublayer.numbers import count
from sublayer.runs.folder import MODEL
from sublayer.study.arms import Arm

if TYPE_CHECKING:
    from sublayer.data.prepare import Data
    from sublayer.data.store import Split
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.inspection.states import Sample


class Inspecting(Table):
    """``inspect`` of a study or of its scale: the measurement of each run after scoring.

    ``layers`` measures as `sublayer inspect layers` does, over at most ``tokens`` tokens of the
    scored split, in full windows spread evenly. A model of one shared block runs it ``beyond`` more
    times than it has layers; by default as many times again.
    """

    what: Literal["layers"]
    tokens: int = Field(8192, ge=1, le=MOST_BATCH_TOKENS)
    beyond: int | None = Field(None, ge=0, le=MOST_LAYERS)

    def n_beyond(self, model: ModelConfig) -> int:
        """Return the number of extra runs of a model's shared block; 0 for other models."""
        if not is_one_block(model):
            return 0
        return model.n_layers if self.beyond is None else self.beyond

    def describe(self, split_name: str) -> str:
        """Describe the measurement and its share of the scored split, in words."""
        return (
            "what each layer does to a token is measured and drawn, over "
            f"{count(self.tokens, 'token')} of the {split_name} split at most"
        )

    def check(self, study: str, arms: Iterable[tuple[str, Recipe]], *, has_stages: bool) -> None:
        """Raise ConfigError for arms, by their names, with nothing to inspect."""
        if has_stages:
            raise ConfigError(
                f"{study}: inspect applies only to studies without stages: leave out inspect, or "
                "[[stages]]"
            )
        models = []
        for arm, recipe in arms:
            models.append(recipe.model)
            if recipe.model.kind == "encoder-decoder" or recipe.data.tasks is not None:
                raise ConfigError(
                    f"{study}: inspect.what = layers requires one stack that reads a text, and "
                    f"{arm} is an encoder-decoder, or learns from examples of tasks: leave out "
                    "inspect"
                )
        if self.beyond and not any(map(is_one_block, models)):
            raise ConfigError(
                f"{study}: inspect.beyond = {self.beyond} repeats a block shared by all layers, "
                "and no arm has model.share = all: leave it out"
            )


LAYERS = "layers.json"


@dataclass(frozen=True)
class InspectedLayers:
    """The changes that a run's blocks make to tokens of a held-out text."""

    split: str
    """``valid`` or ``test``."""
    n_tokens: Count
    """Tokens read in total."""
    n_windows: Count
    changes: list[LayerChange]
    """Block by block; blocks beyond the model's layers come last."""


@dataclass(frozen=True)
class _Kept(InspectedLayers):
    asked: dict[str, Any] = field(kw_only=True)


def kept_layers(inspecting: Inspecting, layers: InspectedLayers) -> dict[str, Any]:
    """Return the content of ``LAYERS``: the settings and the measurement, NaN as null."""
    content = json.loads(TypeAdapter(InspectedLayers).dump_json(layers))
    return {"asked": inspecting.model_dump(exclude_none=True), **content}


def read_layers(run: Path, inspecting: Inspecting) -> InspectedLayers | None:
    """Read the measurement of a run; None without one, or with other settings.

    Raises CheckpointError if the file is damaged.
    """
    path = run / LAYERS
    try:
        content = read_json(path, CheckpointError)
        layers = check_typed(content, _Kept, str(path), CheckpointError, has_tuples=True)
        are_beyond = [change.is_beyond for change in layers.changes]
        is_counted = [block.layer for block in layers.changes] == list(
            range(1, len(are_beyond) + 1)
        )
        if not is_counted or all(are_beyond) or are_beyond != sorted(are_beyond):
            raise CheckpointError(f"{path} is damaged: blocks are missing")
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        remedy = "remove the file, and run the same command again"
        raise CheckpointError(f"{error}: {remedy}") from None
    if layers.asked != inspecting.model_dump(exclude_none=True):
        return None
    return InspectedLayers(layers.split, layers.n_tokens, layers.n_windows, layers.changes)


def inspect_run(
    run: Path, recipe: Recipe, split: "Split", inspecting: Inspecting, *, device: str | None
) -> None:
    """Measure the layers of a trained run and keep the result in its folder, unless present.

    ``device`` is as on the command line; None for the best there is. Raises DataError if the split
    is too short, and CheckpointError if the kept file, or the model, is damaged.
    """
    from sublayer.inspection.states import measure_layers
    from sublayer.loading import load
    from sublayer.objective.base import scored_sequences
    from sublayer.system.machine import choose_device

    if read_layers(run, inspecting) is not None:
        return
    model = load(run, device=choose_device(device)).model
    sample = sample_of(recipe, split, inspecting)
    changes = measure_layers(
        model,
        sample,
        batch_sequences=scored_sequences(model, recipe.data.context),
        beyond=inspecting.n_beyond(model.config),
    )
    layers = InspectedLayers(split.name, sample.n_tokens, len(sample), changes)
    write_json(run / LAYERS, kept_layers(inspecting, layers))


def sample_of(recipe: Recipe, split: "Split", inspecting: Inspecting) -> "Sample":
    """Take the sample of a split, the same for all runs of an arm.

    Raises DataError if the split is shorter than a window.
    """
    from sublayer.inspection.states import spread_windows

    return spread_windows(
        split,
        context=recipe.data.context,
        max_tokens=inspecting.tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
    )


@dataclass(frozen=True)
class LayerSummary:
    """A quantity over the blocks of an arm, each the mean over tokens and runs."""

    mean: float
    """Mean over the model's blocks."""
    from_block_to_block: float | None
    """Mean difference between neighbouring blocks of the model; None for a single block."""
    last: float
    """Value of the model's last block."""
    lowest_beyond: float | None = None
    """Lowest value over blocks beyond the model's; None without any."""
    highest_beyond: float | None = None


def mean_layers(layers: Mapping[int, InspectedLayers]) -> list[LayerChange]:
    """Average each block of an arm over its runs, one at least, by seed."""
    return mean_changes([of_run.changes for of_run in layers.values()])


def summarize(changes: Sequence[LayerChange], quantity: str) -> LayerSummary:
    """Summarize the means of a quantity of blocks."""
    inside, beyond = (
        [change.spread(quantity).mean for change in changes if change.is_beyond == is_beyond]
        for is_beyond in (False, True)
    )
    steps = [abs(after - before) for before, after in pairwise(inside)]
    return LayerSummary(
        mean=math.fsum(inside) / len(inside),
        from_block_to_block=math.fsum(steps) / len(steps) if steps else None,
        last=inside[-1],
        lowest_beyond=min(beyond, default=None),
        highest_beyond=max(beyond, default=None),
    )


def layers_to_json(layers: Mapping[int, InspectedLayers]) -> dict[str, Any]:
    """Return an arm's layers as JSON: the summary of each plotted quantity, and every run."""
    changes = mean_layers(layers)
    return {
        "summary": {
            name: {
                key: None if value is None else finite(value)
                for key, value in asdict(summarize(changes, name)).items()
            }
            for name in ("distance", "angle_degrees")
        },
        "runs": [
            {
                "seed": seed,
                "split": of_run.split,
                "tokens": of_run.n_tokens,
                "windows": of_run.n_windows,
                "layers": [change.flat() for change in of_run.changes],
            }
            for seed, of_run in layers.items()
        ],
    }


SAMPLE = "sample.json"
TEMPERATURE = 0.8
SEED = 0
_PROMPT_BYTES = 60
_MAX_BYTES = 180
"""Bytes of a continuation, and most tokens: about two lines."""


@dataclass(frozen=True)
class WrittenSample:
    """A decoder's continuation of a prompt; U+FFFD replaces invalid UTF-8."""

    prompt: str
    text: str


def draw_samples(
    arms: Sequence[Arm],
    folders: Mapping[str, Sequence[Path]],
    data: Mapping[str, "Data"],
    *,
    device: str | None,
) -> None:
    """Write a continuation by each arm's first finished decoder; keep it in the run's folder.

    ``folders`` are those of the scored runs, by arm. The prompt is the beginning of the baseline's
    test split, up to the end of a word; an arm whose runs have lost their models writes nothing.
    ``device`` is as on the command line. Raises CheckpointError for a damaged model.
    """
    recipe = arms[0].loaded.recipe
    if recipe.objective.kind != "causal":
        return
    test = data[arms[0].name].test
    assert test is not None, "a comparison without a test split is refused"
    n_tokens = min(_PROMPT_BYTES, max(1, recipe.data.context // 2))
    start = int(test.document_starts[0])
    beginning = test.tokenizer.decode(test.ids[start : start + n_tokens])[:_PROMPT_BYTES]
    prompt = beginning.rpartition(b" ")[0] or beginning
    shown = prompt.decode("utf-8", "replace")
    for arm in arms:
        run = next((path for path in folders[arm.name] if (path / MODEL).exists()), None)
        if run is None:
            continue
        sample = read_sample(run)
        if sample is None or sample.prompt != shown:
            tokenizer = data[arm.name].tokenizer
            context = arm.loaded.recipe.data.context
            text = continuation(run, prompt, tokenizer, context=context, device=device)
            write_json(run / SAMPLE, asdict(WrittenSample(shown, text)))


def read_sample(run: Path) -> WrittenSample | None:
    """Read the sample of a run; None without one, or if its file is damaged."""
    try:
        content = read_json(run / SAMPLE, CheckpointError)
        return check_typed(content, WrittenSample, SAMPLE, CheckpointError, has_tuples=True)
    except (FileNotFoundError, CheckpointError):
        return None  # sampled again, with the same result


def continuation(
    run: Path,
    prompt: bytes,
    tokenizer: "Tokenizer | None" = None,
    *,
    context: int,
    device: str | None,
) -> str:
    """Continue a prompt by a run's decoder; empty if neither folder nor call has a tokenizer.

    It ends after ``_MAX_BYTES``, or with the document; a partial last character is dropped.
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
    written = b""
    for step in steps:
        token = int(step[0])
        if token == tokenizer.end_id:
            break
        written += tokenizer.decode_after([token])
        if len(written) >= _MAX_BYTES:
            break
    return codecs.getincrementaldecoder("utf-8")("replace").decode(written[:_MAX_BYTES])
