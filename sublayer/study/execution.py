"""The runs of a study, one after another in this process: trained, scored on the test split, kept."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from sublayer.config.layers import LoadedRecipe, vary
from sublayer.config.objective import MaskedObjective, ObjectiveConfig, TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.data.pair_texts import read_split
from sublayer.data.prepare import Data
from sublayer.decode.beam import BeamSettings
from sublayer.errors import CheckpointError, TrainingError
from sublayer.evaluate.bleu import reference_lines, score_translations, translated_lines
from sublayer.evaluate.likelihood import score
from sublayer.evaluate.masked import Scoring, encoder_scores
from sublayer.evaluate.translation import translate_pairs, translation_nats
from sublayer.load import load
from sublayer.machine import choose_device
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.batching import translation_batches
from sublayer.run import train_run
from sublayer.study.budget import ORIGIN, Settled
from sublayer.study.folder import StudyFolder
from sublayer.study.results import write_json
from sublayer.study.tuning import Trial, choose_trial
from sublayer.train.progress import default_progress, format_seconds
from sublayer.typed import Content, Number, Typed, read_typed

_BATCH_TOKENS = 4096
_TEST, _FAILURE = "test.json", "failure.json"


class _Failure(Typed):
    message: str


class _Scores(Typed):
    """The metrics of a test split by name; ``signature`` says how those of translations are computed."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | list[Number]] = Field(init=False)
    loss: Number
    signature: dict[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a run: its record and its test scores, or the message with which training failed."""

    path: Path
    record: Mapping[str, Any] | None = None
    test: Mapping[str, float] | None = None
    failure: str = ""


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm: the trial that was chosen, and the outcome of each seed under it."""

    settled: Settled
    trial: Trial
    outcomes: Mapping[int, Outcome]


@dataclass
class _Queue:
    """How far the study has come; runs found finished do not count towards its pace."""

    total: int
    started: int = 0
    seconds: list[float] = field(default_factory=list)

    def label(self, arm: str, seed: int) -> str:
        self.started += 1
        left = self.total - self.started + 1
        eta = f", about {format_seconds(left * sum(self.seconds) / len(self.seconds))} to go" if self.seconds else ""
        return f"[{self.started}/{self.total}{eta}] {arm}, seed {seed}: "


@dataclass(frozen=True)
class _Examples:
    """What hidden tokens and pairs every arm is scored on: the baseline's, where the vocabulary is its own too."""

    objective: ObjectiveConfig
    fingerprint: str

    def of(self, recipe: Recipe, data: Data) -> Recipe:
        is_same = data.tokenizer.fingerprint == self.fingerprint
        return recipe.model_copy(update={"objective": self.objective}) if is_same else recipe


def run_arms(
    folder: StudyFolder,
    settled: Sequence[Settled],
    trials: Sequence[Trial],
    data: Mapping[str, Data],
    *,
    n_seeds: int,
    device: str | None,
) -> list[ArmRuns]:
    """Train what is not yet trained: every trial of every arm on seed 0, then the chosen ones on the other seeds.

    ``data`` is each arm's; encoders are scored on the pairs and masks of the first arm's objective. A run that fails is
    kept as a failure and stops nothing; trained runs keep their model, not their checkpoints.
    """  # fmt: skip
    queue = _Queue(len(settled) * (len(trials) + n_seeds - 1))
    examples = _Examples(settled[0].loaded.recipe.objective, data[settled[0].arm.name].tokenizer.fingerprint)

    def run(position: int, trial: Trial, seed: int) -> Outcome:
        arm = settled[position]
        path = folder.run(position, arm.arm.name, trial.name, seed)
        loaded = vary(trial.of(arm.loaded), {"train.seed": seed}, origin=ORIGIN)
        label = queue.label(" ".join(filter(None, (arm.arm.name, trial.name))), seed)
        begun = time.monotonic()
        outcome = _run(path, loaded, data[arm.arm.name], examples, label=label, device=device)
        if time.monotonic() - begun > 1.0:
            queue.seconds.append(time.monotonic() - begun)
        return outcome

    first = [{trial.name: run(position, trial, 0) for trial in trials} for position in range(len(settled))]
    chosen = [choose_trial(trials, {name: _valid_loss(outcome) for name, outcome in tried.items()}) for tried in first]
    outcomes = [{0: tried[trial.name]} for tried, trial in zip(first, chosen, strict=True)]
    for seed in range(1, n_seeds):
        for position, trial in enumerate(chosen):
            outcomes[position][seed] = run(position, trial, seed)
    return [ArmRuns(*each) for each in zip(settled, chosen, outcomes, strict=True)]


def score_test(run: Path, data: Data, recipe: Recipe, *, device: str | None) -> dict[str, Any]:
    """Score the test split under a run's model, by the metrics of its recipe's objective and what they count.

    A decoder sees at least half the context before each token; an encoder is given one pass over the text.
    """
    model, context = load(run, device=choose_device(device)), recipe.data.context
    if isinstance(recipe.objective, MaskedObjective):
        assert isinstance(model, Encoder), "masked objectives train encoders"
        scoring = Scoring(context, max(1, _BATCH_TOKENS // context))
        return encoder_scores(model, data.test, recipe.objective, scoring)
    if isinstance(recipe.objective, TranslationObjective):
        assert isinstance(model, EncoderDecoder), "translation trains encoder-decoders"
        return _score_translator(model, data, recipe)
    likelihood = score(
        model,
        data.test,
        context=context,
        stride=max(1, context // 2),
        batch_sequences=max(1, _BATCH_TOKENS // context),
        respect_boundaries=recipe.data.boundaries == "respect",
    )
    return {"loss": likelihood.loss, "bits_per_byte": likelihood.bits_per_byte, "tokens": likelihood.tokens}


def _score_translator(model: EncoderDecoder, data: Data, recipe: Recipe) -> dict[str, Any]:
    assert isinstance(recipe.objective, TranslationObjective), "it is a translator's"
    pairs = read_split(recipe.data, "test")
    found = translate_pairs(model, pairs, BeamSettings.of(recipe.objective))
    scores = score_translations(
        translated_lines([each.ids for each in found], model.tokenizer),
        reference_lines(pairs, model.tokenizer),
        lowercase=recipe.data.lowercase,
    )
    return {
        "loss": translation_nats(model, translation_batches(recipe, data.test)),
        **{name: score.value for name, score in scores.items()},
        "signature": {name: score.signature for name, score in scores.items()},
    }


def _run(
    path: Path, loaded: LoadedRecipe, data: Data, examples: _Examples, *, label: str, device: str | None
) -> Outcome:
    failure = _read(path / _FAILURE, _Failure)
    if failure is not None:
        return Outcome(path, failure=failure.message)
    try:
        record = train_run(loaded, path, resume=True, device=device, progress=default_progress(label))
    except TrainingError as error:
        write_json(path / _FAILURE, {"message": str(error)})
        return Outcome(path, failure=str(error))
    scores = _read(path / _TEST, _Scores)
    test = None if scores is None else scores.model_dump(exclude_none=True)
    if test is None:
        test = score_test(path, data, examples.of(loaded.recipe, data), device=device)
        write_json(path / _TEST, test)
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    return Outcome(path, record, test)


def _valid_loss(outcome: Outcome) -> float | None:
    return None if outcome.record is None else float(outcome.record["valid"]["loss"])


def _read(path: Path, kind: type[Content]) -> Content | None:
    """Read what a run of the study left; None where it left none."""
    try:
        return read_typed(path, kind, CheckpointError)
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        raise CheckpointError(f"{error}: remove the file, and the same command makes it anew") from None
