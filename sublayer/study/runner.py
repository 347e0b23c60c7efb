"""A comparison from beginning to end: arms, budgets, runs, verdicts, report."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sublayer.data.prepare import Data
from sublayer.objective.metric import Metric
from sublayer.statistics.looks import Looks
from sublayer.study.arms import arm_notes
from sublayer.study.asked import is_run, load_asked
from sublayer.study.budget.match import MatchedArm, Rule, match_budgets
from sublayer.study.budget.shared_tokenizer import share_tokenizer
from sublayer.study.chain.asked import as_asked
from sublayer.study.chain.runner import run_chain
from sublayer.study.checks import (
    check_compared,
    check_held_out,
    check_pairs,
    check_runs,
    check_splits,
    check_study,
    check_windows,
)
from sublayer.study.cluster.computing import Computing
from sublayer.study.cluster.place import check_place
from sublayer.study.collect import collect_results
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Study
from sublayer.study.execution.arm_runs import ArmWork
from sublayer.study.execution.jobs import check_jobs
from sublayer.study.facts import StudyFacts
from sublayer.study.findings.samples import add_samples
from sublayer.study.finished_runs import compare_runs
from sublayer.study.folder import StudyFolder
from sublayer.study.folder_name import find_folder
from sublayer.study.foresight import foresee
from sublayer.study.header import list_study_header
from sublayer.study.inspection.arms import with_layers
from sublayer.study.items.collecting import collect_items
from sublayer.study.judging import Looking
from sublayer.study.metrics import study_metrics
from sublayer.study.options import Options, command_line
from sublayer.study.plan_file import About, Request
from sublayer.study.plan_of_seeds import asked_looks, asked_seeds, with_margin
from sublayer.study.report.notes import list_notes, list_text_caveats
from sublayer.study.result_files import write_results
from sublayer.study.results import Results
from sublayer.study.sealed_runs import sealing_of
from sublayer.study.seeds import Seeds
from sublayer.study.stopping import run_looks
from sublayer.study.tuned_arms import tune_arms
from sublayer.study.tuning import Trial, check_extensible, make_trials
from sublayer.system.stages import note


def run_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a study, or what is missing of it, and return its results and the path of its report.

    Runs that exist, two or more, are compared as they are. Runs that fail are part of the results.
    Raises ConfigError and DataError before anything is trained, Interrupted in between, and
    TrainingError, the report written, where no arm is left with two seeds to compare, or with the
    one that was planned.
    """
    if len(sources) > 1 and any(map(is_run, sources)):
        check_runs(sources, overrides, options)
        return compare_runs([Path(source) for source in sources], options.out, options.device)
    study = load_asked(sources, overrides, vary_texts=options.vary, scale=options.scale)
    if study.chain is not None:
        return run_chain(study, sources, overrides, options)
    asked = _asked(study, options)
    folder = find_folder(asked.study, asked.request, options.out)
    folder.check()
    layer_notes = arm_notes(asked.study.arms)
    if len(sources) > 1:
        for difference in asked.study.caveats:
            note(difference)
    computing = Computing(folder.path, jobs=options.jobs, on=options.on, device=options.device)
    facts = StudyFacts(computing.device, is_elsewhere=computing.cluster is not None)
    with folder.held():
        study = replace(
            asked.study, arms=share_tokenizer(asked.study.arms, facts.data, folder.path)
        )
        data = {arm.name: facts.data(arm.loaded.recipe) for arm in study.arms}
        check_held_out(study, data)
        check_pairs(study, data)
        check_windows(study, data)
        matched_arms = _settle(
            folder, study, asked, facts, data, computing, is_announced=options.is_announced
        )
        if not options.is_announced:
            for line in _first_lines(study, asked, folder, matched_arms, facts, data, computing):
                note(line)
        resuming = command_line(sources, overrides, options, out=folder.path)
        texts = list_text_caveats(data, asked.metric, study.scoring, study.against)
        about = About.of(study, layer_notes, texts)
        folder.keep_command(resuming, about, n_runs=asked.n_runs, n_seeds=asked.looks.planned[-1])
        folder.seal(asked.metric.name, extend=options.extend or 0)
        work = ArmWork(
            folder,
            matched_arms,
            data,
            computing.run_all(asked.n_runs, resuming),
            scoring=study.scoring,
            inspecting=study.inspecting,
        )
        trials, seeds = asked.trials, asked.seeds
        looking = Looking(asked.looks, tuple(folder.reported_seeds()), n_tuning=seeds.n_tuning)
        with closing(computing):
            if len(trials) > 1:
                extensions = options.extend or 0
                trials = tune_arms(
                    work, folder, trials, seeds, asked.tuning_metric, n_extensions=extensions
                )
            runs, n_seeds = run_looks(work, study, seeds, looking)
        folder.add_report(n_seeds)
        n_made = sum(len(each.outcomes) + len(each.losses) * seeds.n_tuning for each in runs)
        folder.keep_command(resuming, about, n_runs=n_made, n_seeds=n_seeds)
        reported = folder.reported_seeds()
        items, without_items = collect_items(runs)
        results = collect_results(
            study,
            asked.rule,
            n_seeds,
            runs,
            facts.measures(len(runs)),
            command=command_line(sources, overrides, options),
            items=items,
            looking=replace(looking, taken=tuple(reported)),
        )
        arms = add_samples(results.arms, runs, data, device=computing.device)
        notes = list_notes(
            results,
            study,
            runs,
            items,
            tune=asked.tune,
            trials=trials,
            n_tuning=seeds.n_tuning,
            layers=layer_notes,
            texts=texts,
            jobs=folder.jobs(),
            clusters=folder.clusters(),
            looks=reported,
        )
        shown = with_layers(arms, runs, study.inspecting)
        sealing = sealing_of(folder.path)
        results = replace(results, arms=shown, notes=notes, sealing=sealing)
        objective = study.arms[0].loaded.recipe.objective
        report = write_results(folder.path, results, objective, items, without_items)
    check_compared(results, report)
    return results, report


@dataclass(frozen=True)
class _Asked:
    """A comparison as it is asked for, before any text is read."""

    study: Study
    rule: Rule
    metric: Metric
    """The one that decides."""
    looks: Looks
    tune: tuple[str, ...]
    trials: Sequence[Trial]
    """A single one where nothing is tuned."""
    seeds: Seeds
    n_runs: int
    """At most: where arms stop, or no trial lies beyond the grid, they are fewer."""

    @property
    def tuning_metric(self) -> Metric | None:
        """The metric that chooses among trials; None: the loss."""
        return self.metric if self.study.tune_by == "metric" else None

    @property
    def n_trial_runs(self) -> int:
        """The runs of each arm that choose its trial."""
        return self.n_runs // len(self.study.arms) - self.looks.planned[-1]

    @property
    def request(self) -> Request:
        """What the folder keeps of it."""
        return Request(
            self.study.arms,
            self.rule,
            self.tune,
            self.study.scoring,
            seeds=self.seeds,
            margin=self.study.question.margin_of(self.study.name, self.metric),
            margin_factor=self.metric.factor,
            looks=self.looks.planned if self.looks.is_sequential else (),
            tune_by=self.study.tune_by,
        )


def _asked(study: Study, options: Options) -> _Asked:
    """Put a study and its command's options together; raise ConfigError where they conflict."""
    as_asked(study, options.tune, options.finetunings, options.data)
    rule = options.match or study.match
    study = with_margin(study, options.margin)
    looks = asked_looks(options, study.n_seeds or DEFAULT_SEEDS)
    check_study(study, looks)
    check_place(options.on, options.jobs, study.arms, rule)
    check_jobs(options.jobs, study.arms, rule)
    tune = options.tune or study.tune
    trials = make_trials(study.arms, tune)
    n_seeds = looks.planned[-1]
    seeds = asked_seeds(options, n_seeds, is_tuned=len(trials) > 1)
    if options.extend:
        check_extensible(trials)
    check_splits(study, n_trials=len(trials))
    metric, *_ = study_metrics(study)
    n_trial_runs = 0
    if len(trials) > 1:
        n_trial_runs = (len(trials) + (options.extend or 0)) * seeds.n_tuning
    n_runs = len(study.arms) * (n_trial_runs + n_seeds)
    return _Asked(study, rule, metric, looks, tune, trials, seeds, n_runs)


def _first_lines(
    study: Study,
    asked: _Asked,
    folder: StudyFolder,
    matched_arms: Sequence[MatchedArm],
    facts: StudyFacts,
    data: Mapping[str, Data],
    computing: Computing,
) -> Iterator[str]:
    """Yield what is said before the first run: budgets, cost, and what the study can find."""
    yield from list_study_header(
        matched_arms,
        data,
        facts.measures(len(study.arms)),
        rule=asked.rule,
        looks=asked.looks,
        n_trials=asked.n_trial_runs,
        n_runs=asked.n_runs,
        computing=computing,
        folder=folder.path,
    )
    yield from foresee(study, asked.metric, asked.looks, folder.path)


def _settle(
    folder: StudyFolder,
    study: Study,
    asked: _Asked,
    facts: StudyFacts,
    data: Mapping[str, Data],
    computing: Computing,
    *,
    is_announced: bool,
) -> list[MatchedArm]:
    """Return what the study settled for its arms when it began, or settle it now."""
    folder.check_inputs(study.arms, data)
    settled = folder.matched_arms(study.arms)
    matched_arms = settled
    if matched_arms is None:
        computing.check_precision(study.arms)
        measures = facts.measures(len(study.arms), is_new=True)
        threads = computing.threads(asked.n_runs)
        matched_arms = match_budgets(study.arms, asked.rule, measures, threads=threads)
    computing.check(matched_arms, data, asked.n_runs, is_announced=is_announced)
    # Nothing is settled by what is refused.
    if settled is None:
        folder.begin(matched_arms, data)
    folder.add_computing(computing.jobs, computing.cluster)
    return matched_arms
