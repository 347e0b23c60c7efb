"""A study's file: its tables, and what they may hold."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from sublayer.config.fields.catalog import TABLES
from sublayer.config.fields.file_tables import first_problem
from sublayer.config.fields.messages import show
from sublayer.config.layering.sources import read_toml
from sublayer.config.limits import MOST_ARMS, MOST_FINETUNINGS, MOST_SEEDS, MOST_STEPS
from sublayer.config.presets import DEFAULT
from sublayer.config.table import Table
from sublayer.errors import ConfigError
from sublayer.study.budget.match import Rule
from sublayer.study.chain.stages import PRETRAINING
from sublayer.study.inspection.asked import Inspecting
from sublayer.study.question import Amount, Hypothesis, Question
from sublayer.study.scoring import Scoring
from sublayer.study.tuning import TuneBy

_SCALE_NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
Sentence = Annotated[str, Field(min_length=1)]
Names = Annotated[list[str], Field(min_length=1)]
Metrics = dict[str, str | Names]
"""By column: the metric that it has instead of the score, or several, columns beside it."""
Averages = dict[str, Annotated[list[str | Names], Field(min_length=1)]]
Published = dict[str, dict[str, float]]

DEVIATION = "deviation"
"""What a published standard deviation is called behind its metric: ``loss:deviation``."""


class ArmTable(Table):
    """An entry of ``[[arms]]``: name, settings, and the arm to compare with, if not the first.

    An arm that is ``against`` itself is compared with none: a control of others.

    ``recipe`` is where it starts, if not from the scale's. Of a study with stages ``set`` is of the
    pre-training, which ``pretrain = false`` leaves out, ``finetune`` of all stages of tasks,
    ``stages`` of those that it names. ``start`` names an arm before it, from whose pre-training of
    the same seed its own starts. ``published`` has what was published, as it is printed: by
    column, or of a study without stages by metric, ``loss``, and as ``loss:deviation`` the standard
    deviation over its runs.
    """

    name: str = Field(min_length=1)
    recipe: str | None = None
    against: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    pretrain: bool = True
    start: str | None = None
    finetune: dict[str, Any] = Field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = Field(default_factory=dict)
    published: dict[str, float] = Field(default_factory=dict)


class StageTable(Table):
    """An entry of ``[[stages]]``: a training that starts from what another stage has left.

    ``after`` names that stage. With ``tasks`` it is fine-tuned on them, several as one mixture;
    ``each`` stands for a stage for each of its tasks, named after it; ``table`` is a table of one's
    own, of which ``columns`` says which is what. Without any of them it goes on with a text.
    ``from_step`` is the step of a checkpoint of that stage's runs, which they keep. ``ensemble``
    names stages of the same tasks instead, whose runs' answers are averaged: nothing is trained. A
    stage of one arm is named ``ARM: STAGE``.
    ``finetunings`` are its own, at most, under each pre-training: of a task that takes long.
    """

    name: str | None = Field(None, min_length=1)
    after: str = PRETRAINING
    from_step: int | None = Field(None, ge=1, le=MOST_STEPS)
    tasks: str | list[str] | None = None
    each: list[str] | None = Field(None, min_length=1)
    table: str | None = None
    columns: dict[str, str | list[str]] | None = None
    ensemble: list[str] | None = Field(None, min_length=1)
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    preset: str = DEFAULT
    set: dict[str, Any] = Field(default_factory=dict)


class HypothesisTable(Table):
    """``[hypothesis]``: what a study is to find out, and the weights of the arms that decide it.

    Weights add up to 0: ``contrast = { "24 layers" = 1, "12 layers" = -1 }``. It holds where the
    weighted sum is better than 0.
    """

    says: Sentence
    contrast: dict[str, float] = Field(min_length=2)


class ScaleTable(Table):
    """``[scale.NAME]``: the recipe of all arms, and settings over it.

    ``[[scale.cpu.arms]]`` are arms of this scale alone, for a study that has no ``[[arms]]`` of all
    scales. ``caveats`` are those of this scale, after the study's own; ``seeds``, ``score``,
    ``inspect``, ``tune``, ``tune_by``, ``metric``, ``margin``, ``margin_reason``, ``spread`` and
    ``hypothesis`` are of this scale, instead of the study's; so are ``stages``, ``finetunings``,
    ``tune_finetune``, ``metrics``, ``averages`` and ``published``. ``finetune`` are settings of all
    stages of tasks.
    """

    recipe: str
    metric: str | None = None
    margin: Amount | None = None
    margin_reason: str | None = None
    spread: Amount | None = None
    hypothesis: HypothesisTable | None = None
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)
    caveats: list[Sentence] = Field(default_factory=list)
    score: Scoring | None = None
    inspect: Inspecting | None = None
    tune: dict[str, Any] | None = None
    tune_by: TuneBy | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)
    finetune: dict[str, Any] = Field(default_factory=dict)
    tune_finetune: dict[str, Any] | None = None
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    stages: list[StageTable] | None = Field(None, min_length=1)
    metrics: Metrics | None = None
    averages: Averages | None = None
    published: Published | None = None


class StudyFile(Table):
    """A study's file; settings are ``"model.ffn" = "relu"`` or tables, ``model.ffn = "relu"``.

    So is ``tune``, with a list of values for each field; ``tune_by = "loss"`` chooses among them by
    the validation loss, where the study's metric is at chance in some arm.

    With ``stages`` every arm is a chain: ``finetunings`` is the number of fine-tunings of each
    stage of tasks under each pre-training, ``nested`` what of them stands for it; ``metrics`` names
    the metric of a column that is not its score, or lists those that are columns beside it;
    ``averages`` are over columns, of which several in a list count as one; ``published`` has what
    was published of others than the arms.
    Of a study without stages it is of arms, by metric, instead of what stands with them.

    ``margin`` is the smallest difference of the metric that matters, either way, with
    ``margin_reason``: a number in the unit that differences are shown in, or with that unit behind
    it, as ``"0.01 bits per byte"``. ``spread`` is the standard deviation over seeds that is
    expected of an arm. ``also`` names further metrics that verdicts are given on.
    """

    title: str = ""
    source: str = ""
    match: Rule = "parameters"
    metric: str | None = None
    also: list[str] = Field(default_factory=list)
    margin: Amount = ""
    margin_reason: str = ""
    spread: Amount = ""
    hypothesis: HypothesisTable | None = None
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)
    caveats: list[Sentence] = Field(default_factory=list)
    score: Scoring | None = None
    inspect: Inspecting | None = None
    tune: dict[str, Any] | None = None
    tune_by: TuneBy = "metric"
    scale: dict[str, ScaleTable] = Field(min_length=1)
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)
    stages: list[StageTable] | None = Field(None, min_length=1)
    finetune: dict[str, Any] = Field(default_factory=dict)
    tune_finetune: dict[str, Any] | None = None
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    nested: Literal["mean", "median"] = "mean"
    metrics: Metrics = Field(default_factory=dict)
    averages: Averages = Field(default_factory=dict)
    published: Published = Field(default_factory=dict)

    def question_of(self, scale: str) -> Question:
        """Return what the study asks at a scale."""
        own = self.scale[scale]
        hypothesis = own.hypothesis or self.hypothesis
        return Question(
            margin=self.margin if own.margin is None else own.margin,
            margin_reason=self.margin_reason if own.margin_reason is None else own.margin_reason,
            spread=self.spread if own.spread is None else own.spread,
            hypothesis=Hypothesis(hypothesis.says, hypothesis.contrast) if hypothesis else None,
            also=tuple(self.also),
        )

    def tune_by_of(self, scale: str) -> TuneBy:
        """Return what chooses among the values that are tried at a scale."""
        return self.scale[scale].tune_by or self.tune_by

    def arms_of(self, scale: str) -> list[ArmTable]:
        """Return the arms of a scale: its own, or those of all scales."""
        return self.scale[scale].arms or self.arms or []

    def stages_of(self, scale: str) -> list[StageTable]:
        """Return the stages of a scale: its own, or those of all scales; none of most studies."""
        return self.scale[scale].stages or self.stages or []

    def published_of(self, scale: str) -> Published:
        """Return what was published of the arms of a scale without stages, by metric.

        What stands for all scales is of the columns of stages where another scale has them.
        """
        is_of_columns = any(map(self.stages_of, self.scale))
        own = self.scale[scale]
        found: Published = {}
        if own.arms or not is_of_columns:
            found = {arm.name: arm.published for arm in self.arms_of(scale) if arm.published}
        told = own.published
        if told is None:
            told = {} if is_of_columns else self.published
        return {**found, **told}


def read_study_file(path: Path) -> StudyFile:
    """Read a study's file. Raises ConfigError by field where it is none."""
    try:
        file = StudyFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(f"study {path}: {first_problem(error, StudyFile)}") from None
    for scale, table in file.scale.items():
        if not _SCALE_NAME.fullmatch(scale):
            raise ConfigError(
                f"study {path}: scale {show(scale)} is no name of a scale: "
                "it takes lower-case letters, digits and hyphens, as paper-524k"
            )
        if (file.arms is None) == (table.arms is None):
            number = "no arms" if table.arms is None else "arms twice"
            raise ConfigError(
                f"study {path}: scale {scale} has {number}: give [[arms]] or [[scale.{scale}.arms]]"
            )
    return file


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten settings in tables, ``{"model": {"ffn": "relu"}}``, to ``{"model.ffn": "relu"}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name in TABLES and isinstance(value, Mapping):
            for key, content in value.items():
                flat[f"{name}.{key}"] = content
        else:
            flat[name] = value
    return flat
