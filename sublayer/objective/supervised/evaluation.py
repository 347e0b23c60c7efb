"""Evaluation of a fine-tuned model, or of an average of several: examples, scores, comparison."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from sublayer.config.load import find_recipe, read_run_recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskPart, TaskSplit, of_tasks
from sublayer.data.tasks.encoded import find_marks
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.errors import CheckpointError, ConfigError, DataError, nearest_hint
from sublayer.files.checkpoints import read_record
from sublayer.files.storage import expanded, resolved
from sublayer.loading import load
from sublayer.objective.base import Evaluation
from sublayer.objective.supervised.answering import (
    MemberAnswers,
    answer_known,
    asked_of,
    check_heads,
    check_members,
    combine,
    mean,
    mean_threshold,
    member_answers,
    objective_of,
    unprepared,
    unprepared_part,
)
from sublayer.objective.supervised.heads import AskedSplit
from sublayer.objective.supervised.scores import (
    BaselineScores,
    PartReport,
    answer_split,
    average_reports,
    part_name,
    report_split,
    trained_examples,
)
from sublayer.system.terminal import stage
from sublayer.tasks.own_table import table_of
from sublayer.tasks.published import ReadSplit
from sublayer.tasks.records import named
from sublayer.tasks.registry import TASKS, TaskSpec, find_files, read_split, wording_of
from sublayer.tasks.scoring import best_threshold, paired, score, with_threshold
from sublayer.tasks.task import Example, Prediction, Task


def asked_spec(request: Evaluation) -> TaskSpec:
    """Return the tasks and format of a model, with the options of an evaluation.

    A model of a task with the same labels is adapted to the requested task, in place. Raises
    ConfigError for a meaningless option, CheckpointError without a tokenizer.
    """
    text_model = request.text_model
    if (name := request.options.get("task")) is not None:
        if name not in TASKS:
            raise ConfigError(
                f"--task {name:.60} is not a task; `sublayer tasks` lists them"
                f"{nearest_hint(name, TASKS)}"
            )
        answer_known(text_model, TASKS[name])
    spec = _spec(request)
    answer = request.options.get("answer")
    if answer is not None:
        if spec.format != "text":
            raise ConfigError(
                f"--answer is for models that read tasks as text to text, but this one reads "
                f"{spec.format}s: leave it out"
            )
        if answer == "rank" and not any(wording_of(task).has_ranks for task in spec.tasks):
            raise ConfigError(
                "--answer rank chooses among labels or choices, and "
                f"{', '.join(task.title for task in spec.tasks)} has none: leave it out"
            )
        spec = replace(spec, answer=answer)
    if text_model.tokenizer is None:
        raise CheckpointError(
            f"{request.run} has no tokenizer.json, and cannot read text without one"
        )
    # Without its format's special tokens it cannot read text.
    find_marks(text_model.tokenizer, spec.format)
    return spec


@dataclass(frozen=True)
class TaskScoring:
    """A model's examples to score, in its format, and training examples for baselines."""

    request: Evaluation
    spec: TaskSpec
    """Tasks and format of the model, with the options of the evaluation."""
    split: TaskSplit
    train: Mapping[str, Sequence[Example]]
    """Training examples by task, without tasks that have none."""
    notes: tuple[str, ...] = ()

    def layout(self, split: TaskSplit) -> AskedSplit:
        """Lay out a split that is encoded for the model."""
        progress = self.request.progress("answered", "batches")
        return asked_of(
            self.request.text_model, split, self.spec, self.request.batch, progress=progress
        )

    def answer(self, split: TaskSplit) -> MemberAnswers:
        """Answer a split as a member of an ensemble."""
        with stage(f"answering by {self.request.run}"):
            return member_answers(self.layout(split))

    def reports(
        self, predictions: Sequence[Prediction], *, are_scored: bool = True
    ) -> list[PartReport]:
        """Report the scores of answers, and with ``are_scored`` of baselines."""
        baselines = BaselineScores(lambda: self.train, are_scored=are_scored)
        return report_split(self.split, baselines, predictions)


def answer_asked(request: Evaluation) -> tuple[TaskScoring, list[Prediction], float]:
    """Answer the examples of an evaluation; return answers and mean loss.

    Raises ConfigError for an unknown location of files, or a meaningless option, DataError for
    missing and damaged files.
    """
    scoring = asked_scoring(request, asked_spec(request))
    layout = scoring.layout(scoring.split)
    predictions, loss = answer_split(layout)
    cuts = scoring.split.describe_cuts(layout.rule)
    return replace(scoring, notes=(*scoring.notes, *cuts)), predictions, loss


def asked_scoring(request: Evaluation, spec: TaskSpec) -> TaskScoring:
    """Read the examples of an evaluation. Raises as ``answer_asked`` does."""
    path, recipe = request.options.get("path"), request.recipe
    text_model, own_spec = request.text_model, _spec(request)
    raw = None if recipe is None else recipe.data.path
    is_own = isinstance(raw, str) and path is not None and resolved(expanded(path)) == resolved(raw)
    notes: list[str] = []
    if path is None or is_own:
        data = own_data(request, request.split)
        scored = data.valid if request.split == "valid" else data.test
        if path is not None and own_spec.columns:
            notes.append(f"{path} is its training data: scored on the rows held out from training")
        split = of_tasks(scored)  # type: ignore[arg-type]
        return TaskScoring(request, spec, split, trained_examples(data), tuple(notes))
    # All labelled rows of another file or folder, none used in training or selection.
    parts: list[TaskPart] = []
    train: dict[str, Sequence[Example]] = {}
    for task in own_spec.tasks:
        read, learned = _read(request, task, path)
        if learned is not None:
            train[task.name] = learned.examples
        parts += [unprepared_part(text_model, task, table.examples, table.name) for table in read]
        notes += [
            f"{task.title}, {table.name}: {note}" for table in read for note in table.described()
        ]
    split = unprepared(text_model, parts, own_spec).split
    by_task: dict[str, list[Example]] = {}
    if request.recipe is not None:
        try:
            by_task = trained_examples(own_data(request, "train"))
        except DataError as error:
            notes.append(f"training rows and baselines are unknown: {error}")
    for part in parts:
        trained = {example.texts for example in by_task.get(part.task.name, ())}
        n_trained = sum(example.texts in trained for example in part.examples)
        if n_trained:
            notes.append(
                f"{part.task.title}: {n_trained:,} of {len(part.examples):,} rows are among its "
                "training rows, which inflates the score"
            )
    return TaskScoring(request, spec, split, {**by_task, **train}, tuple(notes))


def _spec(request: Evaluation) -> TaskSpec:
    assert request.text_model.task is not None, "the model answers tasks"
    return request.text_model.task


def own_data(request: Evaluation, split: str) -> Data:
    """Prepare the examples of a model's run.

    Raises ConfigError outside a run, DataError where ``split`` differs from the run's record.
    """
    if request.recipe is None:
        raise ConfigError(
            f"{request.run} does not belong to a run: name the folder of the tasks' files "
            "(--path); --choose works only with runs"
        )
    config, name = request.recipe.data, request.options.get("task")
    if name is not None:
        config = config.model_copy(update={"tasks": name})
    tokenizer = request.text_model.tokenizer
    data = prepare_tasks(config, objective_of(_spec(request)), tokenizer=tokenizer, trains=False)
    recipe = find_recipe(request.run)
    record = None if recipe is None else read_record(recipe.parent)
    # Another task, on which the model was not trained.
    if record is None or name is not None:
        return data
    if record["data"]["checksums"].get(split) in (None, data.checksums[split]):
        return data
    asked_tasks = {task.name: task for task in _spec(request).tasks}
    for part in of_tasks(data.train).parts:
        trained = asked_tasks.get(part.task.name)
        if trained is not None and trained.labels != part.task.labels:
            raise DataError(
                f"the labels in {config.path} are now {named(part.task.labels)}, but "
                f"{request.run} answers {named(trained.labels)}: restore these in the file"
            )
    raise DataError(
        f"the examples of {request.run} have changed since training: restore "
        f"{config.path}, or score all labelled rows of a copy under another name "
        "(--path)"
    )


_HANDED_IN = "submit a test set (`sublayer predict RUN --submission`), score a development set"


def _read(request: Evaluation, task: Task, path: str) -> tuple[list[ReadSplit], ReadSplit | None]:
    """Read a file of a task, or a folder's development sets and training set.

    The training set is None where there is none. Raises DataError where no row has a label.
    """
    columns = _spec(request).columns
    if columns:
        # Undivided rows need no groups.
        needed = {role: columns[role] for role in columns if role not in ("group", "id")}
        return [table_of(path, needed).read_labelled(task)], None
    if task.name not in TASKS:
        raise ConfigError(
            f"{request.run} answers {task.name}, which has no published files: name a task with "
            "the same labels (--task)"
        )
    location = expanded(path)
    if location.is_file():
        rows = read_split(task, "test", (location,)).examples
        if not any(example.is_labelled for example in rows):
            raise DataError(f"no row of {path} has a label to score {task.title} by: {_HANDED_IN}")
        return [read_split(task, "dev", (location,))], None
    by_split = find_files(task, location)
    devs = [name for name in task.dev_splits if name in by_split]
    if not devs:
        there = ", ".join(by_split) or "nothing"
        raise DataError(f"{path} has {there} of {task.title}, but no development set: {_HANDED_IN}")
    scored = [read_split(task, name, by_split[name]) for name in devs]
    train = read_split(task, "train", by_split["train"]) if "train" in by_split else None
    return scored, train


def check_same_rows(
    run: Path, part: TaskPart, other_run: Path, other: TaskPart, what: str = "is scored on"
) -> None:
    """Raise ConfigError where labels differ, and DataError where rows do.

    ``what`` is the verb of the message.
    """
    if part.task.labels != other.task.labels:
        raise ConfigError(
            f"{other_run} answers {part.task.title} with other labels than {run}: choose models "
            "of one task"
        )
    mine, theirs = (
        [(row.id, *row.texts, row.label, *row.answers) for row in side.examples]
        for side in (part, other)
    )
    if mine != theirs:
        n_common = len(set(mine) & set(theirs))
        raise DataError(
            f"{other_run} {what} other rows of {part.task.title} than {run}: "
            f"{n_common:,} of {len(theirs):,} are the same; choose models with the same data "
            "and split, or a file that neither has seen (--path)"
        )


def compare_with(
    request: Evaluation, split: TaskSplit, predictions: Sequence[Prediction], against: Path
) -> dict[str, Any]:
    """Compare two models' answers to the same examples, by common task.

    Raises ConfigError without a common task, DataError for different examples.
    """
    text_model = load(against, device=request.model.embedding.weight.device)
    if text_model.task is None:
        raise ConfigError(f"{against} answers no task: name a fine-tuned model")
    recipe = find_recipe(against)
    run_recipe = None if recipe is None else read_run_recipe(recipe)
    options = {name: value for name, value in request.options.items() if name != "against"}
    if text_model.task.format != "text":
        options.pop("answer", None)
    other_request = replace(
        request, run=against, text_model=text_model, recipe=run_recipe, options=options
    )
    theirs, their_predictions, _ = answer_asked(other_request)
    others = {
        (part.task.name, part.published): (part, answers)
        for part, answers in theirs.split.by_part(their_predictions)
    }
    tasks = []
    for part, ours in split.by_part(predictions):
        if (part.task.name, part.published) not in others:
            continue
        other, other_own = others[part.task.name, part.published]
        check_same_rows(request.run, part, against, other)
        comparison = paired(part.examples, ours, other_own, part.task.metrics)
        tasks.append(
            {
                "task": part_name(part, split.parts),
                "title": part.task.title,
                "examples": len(part.examples),
                **asdict(comparison),
                "is_decided": comparison.is_decided,
            }
        )
    if not tasks:
        titles = [
            ", ".join(dict.fromkeys(part.task.title for part in side.parts))
            for side in (theirs.split, split)
        ]
        raise ConfigError(
            f"{against} answers {titles[0]}, but {request.run} {titles[1]}: compare models of one "
            "task"
        )
    return {"run": str(against), "tasks": tasks}


def evaluate_tasks(request: Evaluation) -> dict[str, Any]:
    """Score the published development set, held-out examples, or another file or folder.

    Includes baselines, where they have training examples, and the comparison with ``against``, if
    given. Raises as ``answer_asked`` and ``compare_with`` do.
    """
    scoring, predictions, loss = answer_asked(request)
    against = request.options.get("against")
    compared = (
        None if against is None else compare_with(request, scoring.split, predictions, against)
    )
    reports = scoring.reports(predictions)
    result = {
        "tasks": [report.to_json() for report in reports],
        "averages": average_reports(reports),
        "loss": loss,
        "selected_by": selected_by(request),
        "part": request.split,
        "notes": list(scoring.notes),
        "run": str(request.run),
    }
    return result if compared is None else {**result, "against": compared}


def selected_by(request: Evaluation) -> str | None:
    """Return how a run's checkpoint was selected: last, held-out or dev; None outside a run."""
    if request.recipe is None:
        return None
    return "last" if request.recipe.train.best_by == "last" else request.recipe.data.select


Choice = tuple[tuple[int, ...], float, int, list[tuple[int, float]]]
"""Members, in the order of the runs; their score on the selection rows, biased upwards by the
selection; the number of ensembles scored; members in the order of addition, each with the score of
the ensemble up to it."""


def choose(n_runs: int, score: Callable[[Sequence[int]], float]) -> Choice:
    """Select members greedily: add the run that improves the score most, while any does.

    ``score`` scores an ensemble of run numbers. The first of equals is taken.
    """
    steps: list[tuple[int, float]] = []
    left = list(range(n_runs))
    n_tried = 0
    while left:
        chosen = [member for member, _ in steps]
        tried = [(run, score(sorted([*chosen, run]))) for run in left]
        n_tried += len(tried)
        member, best = max(tried, key=itemgetter(1))
        if steps and not best > steps[-1][1]:
            break
        steps.append((member, best))
        left.remove(member)
    return tuple(sorted(member for member, _ in steps)), steps[-1][1], n_tried, steps


def evaluate_ensemble(requests: Sequence[Evaluation], *, chooses: bool) -> dict[str, Any]:
    """Score the average of several runs, and each run, on the same examples.

    With ``chooses`` members are selected greedily on rows held out of train; otherwise all runs are
    members. Raises ConfigError where runs answer differently, or no held-out rows are left
    unscored, DataError where they are scored on different rows.
    """
    first = requests[0]
    if chooses and first.split == "valid":
        raise ConfigError(
            "--choose selects members on the held-out rows, and --split valid scores the same "
            "rows: leave one of them out"
        )
    names = [str(request.run) for request in requests]
    specs = []
    for request in requests:
        options = dict(request.options)
        task = request.text_model.task
        if task is not None and task.format != "text":
            # Only the text format has a choice of ``answer``.
            options.pop("answer", None)
        specs.append(asked_spec(replace(request, options=options)))
    check_members(names, specs)
    check_heads(names, [request.text_model for request in requests])
    runs = [asked_scoring(*pair) for pair in zip(requests, specs, strict=True)]
    _check_same(runs, [run.split for run in runs], "is scored on")
    split = runs[0].split
    members: Sequence[int] = range(len(runs))
    choice: dict[str, Any] | None = None
    if chooses:
        members, threshold, choice = _choose(runs, names)
    answers = [run.answer(run.split) for run in runs]
    chosen = [answers[number] for number in members]
    if not chooses:
        threshold = mean_threshold(chosen)
    predictions = combine(split.parts, chosen, threshold)
    reports = runs[0].reports(predictions)
    alone = []
    for number, (run, own) in enumerate(zip(runs, answers, strict=True)):
        own_predictions = combine(run.split.parts, [own], own.threshold)
        tasks = [part.to_json() for part in run.reports(own_predictions, are_scored=False)]
        for task_report in tasks:
            del task_report["baselines"]
        alone.append(
            {
                "run": names[number],
                "is_member": number in members,
                "selected_by": selected_by(run.request),
                "tasks": tasks,
            }
        )
    result: dict[str, Any] = {
        "tasks": [report.to_json() for report in reports],
        "averages": average_reports(reports),
        "members": alone,
        "threshold": threshold,
        "choice": choice,
        "part": first.split,
        "notes": list(dict.fromkeys(note for run in runs for note in run.notes)),
        "runs": names,
    }
    against = first.options.get("against")
    if against is not None:
        result["against"] = compare_with(first, split, predictions, against)
    return result


def _check_same(runs: Sequence[TaskScoring], splits: Sequence[TaskSplit], what: str) -> None:
    """Raise DataError where a run has other rows than the first."""
    first = runs[0].request.run
    sets, *others = ([f"{p.task.name} {p.published}" for p in split.parts] for split in splits)
    for run, split, names in zip(runs[1:], splits[1:], others, strict=True):
        if names != sets:
            raise DataError(
                f"{run.request.run} {what} {', '.join(names)}, but {first} {', '.join(sets)}: "
                "choose models of the same data, in the same order"
            )
        for part, other in zip(splits[0].parts, split.parts, strict=True):
            check_same_rows(first, part, run.request.run, other, what)


class UnseenRows:
    """Selection rows: the held-out rows with texts that are not scored.

    Raises DataError where a part has no such row, as where the development set selects.
    """

    def __init__(
        self, held_out: Sequence[TaskPart], scored: Sequence[TaskPart], run: object
    ) -> None:
        self.parts = held_out
        self.places: list[list[int]] = []
        """Indices of each part's selection examples."""
        texts = {example.texts for part in scored for example in part.examples}
        for part in held_out:
            places = [index for index, e in enumerate(part.examples) if e.texts not in texts]
            if not places:
                raise DataError(
                    f"{run} has no held-out row of {part.task.title} that is not scored: hold "
                    "rows out in training (data.select = held-out), or leave --choose out"
                )
            self.places.append(places)

    @property
    def n_rows(self) -> int:
        """Count the selection rows."""
        return sum(map(len, self.places))

    def score(self, members: Sequence[MemberAnswers]) -> tuple[float, float | None]:
        """Score an ensemble: the mean over parts, and its no-answer threshold.

        The threshold is the best one, as after training; None without one.
        """
        threshold = mean_threshold(members)
        all_predictions = combine(self.parts, members, None)
        values = []
        first = 0
        for part, places in zip(self.parts, self.places, strict=True):
            examples = [part.examples[index] for index in places]
            predictions = [all_predictions[first + index] for index in places]
            first += len(part.examples)
            if threshold is not None:
                _, threshold = best_threshold(examples, predictions)
                predictions = with_threshold(predictions, threshold)
            values.append(score(examples, predictions, part.task.metrics).value)
        return mean(values), threshold


def _choose(
    runs: Sequence[TaskScoring], names: Sequence[str]
) -> tuple[Sequence[int], float | None, dict[str, Any]]:
    """Select members on held-out rows; return them, the best threshold, and the selection."""
    held = []
    for run in runs:
        data = own_data(run.request, "valid")
        assert data.valid is not None, "tasks hold examples out"
        held.append(of_tasks(data.valid))
    _check_same(runs, held, "held out")
    rows = UnseenRows(held[0].parts, runs[0].split.parts, runs[0].request.run)
    answers = [run.answer(split) for run, split in zip(runs, held, strict=True)]

    def scored(members: Sequence[int]) -> tuple[float, float | None]:
        return rows.score([answers[number] for number in members])

    with stage("choosing members"):
        members, best, n_tried, steps = choose(len(runs), lambda members: scored(members)[0])
    described = {
        "how": "greedy",
        "rows": rows.n_rows,
        "rows_left_out": sum(len(part.examples) for part in rows.parts) - rows.n_rows,
        "ensembles": n_tried,
        "score": best,
        "members": [names[number] for number in members],
        "steps": [{"run": names[member], "score": value} for member, value in steps],
    }
    return members, scored(members)[1], described
