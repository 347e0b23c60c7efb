"""``sublayer evaluate``: how well a model predicts a text, judges pairs of texts, answers tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sublayer.commands.evaluate.options import (
    AgainstOption,
    AnswerOption,
    BleuTokenizerOption,
    ChooseOption,
    CompoundsOption,
    CorpusOption,
    CsvOption,
    HtmlOption,
    LowercaseOption,
    PairsOption,
    PathOption,
    ProbesOption,
    ReferenceOption,
    ReferencesOption,
    SplitOption,
    StrideOption,
    SuiteOption,
    TaskOption,
    WordsOption,
)
from sublayer.commands.evaluate.probes import ProbesAsked, check_alone, evaluate_probes
from sublayer.commands.evaluate.suite import check_without_suite, evaluate_models
from sublayer.commands.evaluate.text import ScoredText
from sublayer.commands.shared.base import (
    AverageOption,
    BatchOption,
    DeviceOption,
    JsonOption,
    RunsArgument,
    emit,
    has_work,
)
from sublayer.commands.shared.beam_options import (
    BeamOption,
    MaxLengthOffsetOption,
    MaxLengthRatioOption,
    PenaltyOption,
    RuleOption,
    beam_options,
)
from sublayer.commands.shared.text_options import (
    DocumentsOption,
    TextFieldOption,
    TokenProgress,
    recipe_of,
)
from sublayer.errors import ConfigError
from sublayer.system.stages import stage

if TYPE_CHECKING:
    from sublayer.objective.evaluation import Evaluation
    from sublayer.objective.family import Family

EXAMPLE = "sublayer evaluate runs/book --split test --stride 32"


def command(
    runs: RunsArgument,
    split: SplitOption = None,
    path: PathOption = None,
    corpus: CorpusOption = None,
    documents: DocumentsOption = None,
    text_field: TextFieldOption = None,
    stride: StrideOption = None,
    pairs: PairsOption = None,
    beam: BeamOption = None,
    rule: RuleOption = None,
    penalty: PenaltyOption = None,
    max_length_ratio: MaxLengthRatioOption = None,
    max_length_offset: MaxLengthOffsetOption = None,
    average: AverageOption = None,
    lowercase: LowercaseOption = False,
    compounds: CompoundsOption = False,
    bleu_tokenizer: BleuTokenizerOption = None,
    references: ReferencesOption = None,
    against: AgainstOption = None,
    answer: AnswerOption = None,
    task: TaskOption = None,
    probes: ProbesOption = None,
    words: WordsOption = None,
    reference: ReferenceOption = None,
    choose: ChooseOption = None,
    suite: SuiteOption = None,
    csv: CsvOption = None,
    html: HtmlOption = None,
    batch: BatchOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score how well a model predicts a text, or answers tasks, that it was not trained on.

    A decoder gives bits per byte (lower is better; compares across tokenizers), and the loss per
    token, character and word. An encoder gives the accuracy of masked tokens and of judging pairs
    of texts: next sentence (nsp) and sentence order (sop), whichever it was trained on. A
    translator gives BLEU against the text's own translations. A fine-tuned model gives its score on
    the development set of its tasks, with the standard error and what needs no model beside it;
    several are scored as one, the average of what they answer. What predicts text answers --probes,
    tasks that nothing was trained on. With --suite any models stand side by side in one scorecard,
    by what a file lists. The arithmetic is that of the saved weights, float32, whatever the
    precision of training was.
    """
    options: dict[str, Any] = {
        "path": path,
        "corpus": corpus,
        "documents": documents,
        "text_field": text_field,
        "stride": stride,
        "pairs": pairs,
        **beam_options(beam, rule, penalty, max_length_ratio, max_length_offset),
        "lowercase": lowercase or None,
        "compounds": compounds or None,
        "bleu_tokenizer": bleu_tokenizer,
        "references": references or None,
        "against": against,
        "answer": answer,
        "task": task,
    }
    given = {name: value for name, value in options.items() if value is not None}
    files = {"csv": csv, "html": html}
    others = {"split": split, "batch": batch, "choose": choose}
    beside = {**given, **{name: value for name, value in others.items() if value is not None}}
    if suite is not None:
        of_probes = {"probes": probes, "words": words, "reference": reference, "average": average}
        beside |= {name: value for name, value in of_probes.items() if value}
        evaluate_models(suite, runs, files, beside, device, as_json=as_json)
        return
    check_without_suite(files)
    if not has_work("evaluate"):
        return
    if probes is not None:
        check_alone(beside, runs)
        asked = ProbesAsked(runs[0], probes, path, words, tuple(reference or ()))
        evaluate_probes(asked, device=device, average=average, as_json=as_json)
        return
    _check_without_probes(words, reference)
    texts = [ScoredText(run, split, path, corpus, documents, text_field) for run in runs]
    computation = _Computation(device, batch, average)
    if len(runs) > 1:
        _evaluate_together(texts, given, computation, chooses=choose is not None, as_json=as_json)
        return
    if choose is not None:
        raise ConfigError("--choose chooses members among several runs: name them")
    family, request = _prepare(texts[0], given, computation)
    with stage("scoring"):
        result = family.evaluate(request)
    emit(result, as_json, family.render)


def _check_without_probes(words: str | None, reference: list[str] | None) -> None:
    for name, value in (("--words", words), ("--reference", reference)):
        if value:
            raise ConfigError(f"{name} is of --probes: give both, or leave it out")


def _evaluate_together(
    texts: "Sequence[ScoredText]",
    given: Mapping[str, Any],
    computation: "_Computation",
    *,
    chooses: bool,
    as_json: bool,
) -> None:
    """Score several fine-tuned runs as one. Raises ConfigError where a run answers no task."""
    with stage("starting PyTorch"):
        from sublayer.objective.supervised.ensemble import find_members
        from sublayer.objective.supervised.ensemble_evaluation import evaluate_ensemble
        from sublayer.objective.supervised.rendering import render_ensemble

    find_members([text.run for text in texts])
    requests = [_prepare(text, given, computation)[1] for text in texts]
    with stage("scoring"):
        result = evaluate_ensemble(requests, chooses=chooses)
    emit(result, as_json, render_ensemble)


@dataclass(frozen=True)
class _Computation:
    """Where scores are computed, how many rows at a time, and of how many checkpoints' mean."""

    device: str | None
    batch: int | None
    average: int | None


def _prepare(
    text: ScoredText, given: Mapping[str, Any], computation: _Computation
) -> "tuple[Family, Evaluation]":
    """Load the model and return what scores it, with the request."""
    with stage("starting PyTorch"):
        from sublayer.loading import load
        from sublayer.objective.evaluation import Evaluation
        from sublayer.objective.families import family_of_model
        from sublayer.system.machine import choose_device

    device = choose_device(computation.device)
    text.check()
    model = load(text.run, device=device, average=computation.average)
    recipe = recipe_of(text.run)
    kind, family = family_of_model(model, recipe)
    _check_options(given, kind)
    request = Evaluation(
        run=text.run,
        model=model,
        recipe=recipe,
        split=text.split or ("valid" if model.task is None else "test"),
        options=given,
        batch=computation.batch,
        average=computation.average,
        read_text=lambda sentences: text.read(model, recipe, sentences),
        own_text=lambda: text.read_own(model, recipe),
        progress=TokenProgress,
    )
    return family, request


def _check_options(given: Mapping[str, Any], kind: str) -> None:
    """Raise ConfigError for an option that models of other kinds have."""
    from sublayer.objective.families import FAMILIES

    for name in given:
        if name in FAMILIES[kind].options:
            continue
        kinds = [each for each, family in FAMILIES.items() if name in family.options]
        option = f"--{name.replace('_', '-')}"
        raise ConfigError(
            f"{option} is for models of objective.kind = {' or '.join(kinds)}, "
            f"and this one is of {kind}: leave it out"
        )
