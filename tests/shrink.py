"""Commands as the pages show them, with models and lengths that take a moment."""

from collections.abc import Sequence
from itertools import takewhile

from sublayer.config.layering.layers import LoadedRecipe, load_recipe
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.study.definition import find_study, load_study

TRAINING = ("train", "compare")
_STEPS = 4
_LENGTHS = tuple(f"train.{name}=" for name in LENGTHS)
_MODEL = {"n_layers": 2, "n_decoder_layers": 2, "d_model": 32, "n_heads": 2, "d_head": 16}
_TUNED = {"n_layers": 1, "d_model": 32, "n_heads": 2}
_WIDTHS = {"d_ff": 48, "d_embed": 16}


def shrink(words: Sequence[str]) -> list[str]:
    """Return a command's words with a length, a model and a batch that take a moment.

    What is not trained stays as it is; so does the model of a study, whose arms are about it.
    """
    if words[0] == "demo":
        return ["compare", "demo", *_shortened([]), "--seeds", "1"]
    if words[0] == "finetune":
        return _tuned(words)
    if words[0] not in TRAINING:
        return list(words)
    names = list(takewhile(lambda word: "=" not in word and not word.startswith("-"), words[1:]))
    if len(names) > 1 and names[0].startswith("runs/"):
        return list(words)  # runs that have ended are compared as they are
    kept = [words[0], *names]
    is_study = words[0] == "compare" and find_study(words[1]) is not None
    settings: list[str] = []
    options: list[str] = []
    for word in words[len(kept) :]:
        is_value = options[-1:] in (["--vary"], ["--tune"])
        is_setting = "." in word.partition("=")[0] and "=" in word and not is_value
        (settings if is_setting else options).append(word)
    if is_study:
        few = [] if "--seeds" in options else ["--seeds", "1"]
        scale = options[options.index("--scale") + 1] if "--scale" in options else None
        if load_study(words[1], scale=scale).chain is not None:
            few += ["--finetunings", "1", f"finetune.train.steps={_STEPS}"]
        return [*kept, *_shortened(settings), "train.batch_sequences=4", *options, *few]
    if words[1].startswith("runs/") and "--resume" in options:
        others = [each for each in settings if not each.startswith(_LENGTHS)]
        return [*kept, *others, *([f"train.steps={2 * _STEPS}"] if settings else []), *options]
    if words[1].startswith("runs/") or any(each.startswith("init.run") for each in settings):
        return [*kept, *_shortened(settings), *options]
    loaded = load_recipe(words[1], settings)
    return [*kept, *_shortened(settings), *_small_model(loaded, settings), *options]


def _tuned(words: Sequence[str]) -> list[str]:
    """Return the words of a fine-tuning of a few steps, of a small model where it is a recipe's."""
    settings = [word for word in words[1:] if "=" in word]
    others = [word for word in words[1:] if "=" not in word]
    small = [] if others[0].startswith("runs/") else [f"model.{k}={v}" for k, v in _TUNED.items()]
    # A preset may have a warm-up of more steps than these.
    warmup = ["optimizer.warmup_steps=1"] if "--preset" in others else []
    return ["finetune", *others, *_shortened([*settings, *warmup]), *small]


def _shortened(settings: Sequence[str]) -> list[str]:
    """Return settings with a length of a few steps in place of any other."""
    few = {
        "train.steps": _STEPS,
        "train.evaluate_steps": _STEPS,
        "train.checkpoint_steps": 1,
        "train.threads": 1,
        "train.precision": "float32",
        "train.evaluate_tokens": 1024,
    }
    if any(each.startswith("optimizer.warmup_steps=") for each in settings):
        few["optimizer.warmup_steps"] = 1
    others = [each for each in settings if not each.startswith(_LENGTHS)]
    kept = [each for each in others if each.partition("=")[0] not in few]
    return [*kept, *(f"{key}={value}" for key, value in few.items())]


def _small_model(loaded: LoadedRecipe, settings: Sequence[str]) -> list[str]:
    """Return settings of a small model and batch, but for what the command itself sets."""
    recipe = loaded.recipe
    small: dict[str, int] = {}
    for name, value in {**_MODEL, **_WIDTHS}.items():
        current = getattr(recipe.model, name)
        if current is not None and current > value:
            small[f"model.{name}"] = value
    if (getattr(recipe.optimizer, "warmup_steps", None) or 0) > _STEPS:
        small["optimizer.warmup_steps"] = 1
    small["data.context"] = min(recipe.data.context, 32)
    if recipe.data.vocab_size is not None:
        small["data.vocab_size"] = min(recipe.data.vocab_size, 400)
    for name in BATCHES:
        if getattr(recipe.train, name) is not None:
            small[f"train.{name}"] = 4 if name == "batch_sequences" else 256
    given = {each.partition("=")[0] for each in settings}
    return [f"{key}={value}" for key, value in small.items() if key not in given]
