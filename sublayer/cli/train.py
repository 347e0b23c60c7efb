"""``sublayer train``: train a recipe, or resume a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.api.training import train
from sublayer.cli.build import Json, JsonObject, Settings, client_of, emit
from sublayer.counts import count
from sublayer.files.paths import as_typed
from sublayer.system.launch import is_first_launched
from sublayer.system.terminal import hanging

if TYPE_CHECKING:
    from sublayer.config.recipe import ResolvedRecipe

EXAMPLE = "sublayer train gpt data.path=book.txt model.n_layers=4 train.minutes=2 --out runs/book"


@client_of(train)
def command(options: dict[str, Any], settings: Settings = (), as_json: Json = False) -> None:
    """Train a model as a recipe says, and keep it with its record in a folder of its own.

    Ctrl-C saves and stops; the same command with --resume resumes, and ends with the same weights
    as if it had never been stopped. With --resume and a longer length, such as train.steps=400, a
    run continues to that, finished or not. Several processes: torchrun --nproc-per-node 2 -m
    sublayer train RECIPE ... --out FOLDER.
    """
    run = train(overrides=settings, **options)
    if is_first_launched():
        emit(run, as_json, lambda record: _render(record, run.recipe))


def _render(record: JsonObject, recipe: "ResolvedRecipe") -> str:
    from sublayer.cli.following import after_training
    from sublayer.numbers import format_quantity
    from sublayer.objective.families import family_of
    from sublayer.objective.family import describe_watched

    family, valid = family_of(recipe.objective), record["valid"]
    scores = [f"watched: {line}" for line in describe_watched(family, valid)]
    if "loss" in valid:
        which = "the last" if recipe.train.best_by == "last" else "best"
        scores.insert(
            0,
            f"valid: {family.describe(valid)} ({which} of the evaluations during "
            f"training, at step {valid['step']:,})",
        )
    folder = record["run"]
    steps, tokens = count(record["step"], "step"), count(record["tokens"], "token")
    speed = f"{record['tokens_per_s']:,.0f} tokens/s"
    trained = f"trained {steps}, {tokens} in {record['seconds']:.0f} s ({speed})"
    lines = [trained]
    if record.get("stopped_early"):
        lines.append(f"ended early, of {count(recipe.train.steps or 0, 'step')}: train.patience")
    if record.get("peak_memory_bytes") is not None:
        memory = format_quantity(record["peak_memory_bytes"], "B")
        lines.append(
            f"memory: {memory} at most, beyond what the process held before the run; on a CPU "
            "also what the program loaded meanwhile, which plan leaves out"
        )
    minutes = record.get("minutes") or {}
    if minutes.get("note"):
        lines.append(minutes["note"])
    lines += scores
    if "loss" in record["valid"]:
        lines += _last_losses(Path(folder), record["valid"]["loss"])
    wrapped = [hanging(line, "", "  ") for line in lines]
    following = after_training(folder, recipe, record["data"])
    return "\n".join([*wrapped, f"model and record: {as_typed(folder)}", *following])


def _last_losses(folder: Path, best: float) -> list[str]:
    """Say where training ended: the last losses, and how far validation is above training."""
    from sublayer.study.curves import LOSS, read_curves

    # Of a seed, which matters for nothing here.
    curves = read_curves(0, folder, [LOSS])
    trained = curves.training
    if trained is None or LOSS not in curves.validation:
        return []
    valid = curves.validation[LOSS].values[-1]
    gap = valid - trained.values[-1]
    worse = f", {valid - best:.4f} above the best" if valid > best else ""
    return [
        f"at the end: valid {valid:.4f}{worse}; train {trained.values[-1]:.4f} nats over the steps "
        f"since the evaluation before, so that valid is {abs(gap):.4f} "
        f"{'above' if gap >= 0 else 'below'} it"
    ]
