"""``check``: what holds for the rows of a plugin, each tried in small models and runs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sublayer.api.results import Found
from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.plugins import Plugin, Row, blaming, load_plugins
from sublayer.config.resolve import resolve_model
from sublayer.decode.step import PlainStepper, Stepper, is_unrolled
from sublayer.errors import ConfigError
from sublayer.loading import load_untokenized
from sublayer.model.cache import Cache
from sublayer.model.context import Context, Layout
from sublayer.model.estimates import count_parameters, estimate_of
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import Decoder, Transformer, build, compose
from sublayer.options import PathText, checked
from sublayer.rows import TINY, VOCABULARY, ModelRow, Sublayer
from sublayer.runs.run import train_run
from sublayer.study.budget import TOLERANCE, match_parameters
from sublayer.system.terminal import hanging, stage, terminal_width
from sublayer.tables import table
from sublayer.training.log import SilentProgress

FAILS = 4
"""Exit code where something does not hold."""
_T, _CLOSE, _STEP = 12, 1e-9, 1e-5
"""Tokens of a text, largest difference of logits in float64, and step of finite differences."""
_RUN: dict[str, Any] = {"model.n_layers": 2, "model.d_model": 16, "model.n_heads": 2}
_RUN |= {"data.context": 16, "data.tokenizer": "bytes", "train.batch_sequences": 2}
_RUN |= {"train.steps": 4, "train.checkpoint_steps": 2, "train.evaluate_steps": 4}
_RUN |= {"train.precision": "float32", "train.threads": 1, "train.evaluate_tokens": 64}
_TEXT = "".join(chr(97 + i * i % 23) for i in range(4000))


def _random(shape: tuple[int, ...], *, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def _model(row: type[ModelRow], **fields: Any) -> tuple[Transformer, Tensor]:
    """Build a small model in float64, with all parameters off their initial values, and a text."""
    model = build(row.tiny(**fields), seed=1).double().eval()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(_random(parameter.shape, seed=number), alpha=0.1)
    return model, torch.arange(2 * _T).square().view(2, _T) % VOCABULARY


def _agree(found: Tensor, expected: Tensor, where: str) -> None:
    difference = float((found - expected).detach().abs().max())
    if not difference <= _CLOSE:  # nor NaN
        raise ConfigError(f"logits differ by {difference:.2g} {where}")


def _counted(row: type[Row]) -> None:
    row.try_out()
    if not issubclass(row, Sublayer):
        return
    model, tokens = _model(row)
    entry, x = model.shape.block[1], torch.zeros(2, _T, model.config.d_model).double()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.stack.block(0)[1].function(x, Context(Layout.causal(tokens), None))
    done = counter.get_total_flops() // 2
    counted = 2 * estimate_of(model.config, entry).n_products(model.shape, _T, 0)
    # Scores of later tokens may be computed, and are not counted.
    if counted > done or (counted < done and row.attends_to == "nothing"):
        raise ConfigError(f"n_products counts {counted:,} multiply-adds, {done:,} are computed")


def _gradients(row: type[ModelRow]) -> None:
    """Compare the slope in a direction of each parameter with a finite difference."""
    model, tokens = _model(row)
    weights = _random((2, _T, VOCABULARY), seed=1)
    for name, parameter in model.named_parameters():
        direction = _random(parameter.shape, seed=2) / parameter.numel() ** 0.5
        model.zero_grad()
        (model(tokens).logits * weights).sum().backward()
        if parameter.grad is None:
            raise ConfigError(f"{name} has no gradient")
        ends = []
        with torch.no_grad():
            for step in (_STEP, -2 * _STEP):
                parameter.add_(direction, alpha=step)
                ends.append(float((model(tokens).logits * weights).sum()))
            parameter.add_(direction, alpha=_STEP)
        slope, expected = float((parameter.grad * direction).sum()), (ends[0] - ends[1]) / 2 / _STEP
        if not abs(slope - expected) <= 1e-4 * (1 + abs(expected)):
            raise ConfigError(f"the gradient of {name} is {slope:.6g}, not {expected:.6g}")


def _causal(row: type[ModelRow]) -> None:
    model, tokens = _model(row)
    changed = torch.cat([tokens[:, :8], (tokens[:, 8:] + 1) % VOCABULARY], dim=1)
    _agree(model(changed).logits[:, :8], model(tokens).logits[:, :8], "before changed tokens")


@torch.no_grad()
def _cached(row: type[ModelRow]) -> None:
    model, tokens = _model(row)
    assert isinstance(model, Decoder), "the default of model.kind"
    whole, cache = model(tokens).logits, Cache(model.config, 2, _T, torch.float64)
    for start, end in ((0, 4), (4, 7)):
        part = model(tokens[:, start:end], cache=cache).logits
        _agree(part, whole[:, start:end], "with a cache")
    step = (Stepper if is_unrolled(model) else PlainStepper)(model, 2)
    for place in range(7, _T):
        _agree(step(tokens[:, place], cache), whole[:, place], "in steps of generation")


def _padded(row: type[ModelRow]) -> None:
    for kind in ("decoder", "encoder"):
        model, tokens = _model(row, kind=kind)
        for left, right in ((3, 0), (0, 3)):
            is_real = F.pad(torch.ones_like(tokens, dtype=torch.bool), (left, right))
            logits = model(F.pad(tokens, (left, right)), is_real).logits[:, left : left + _T]
            _agree(logits, model(tokens).logits, f"with padding, in model.kind = {kind}")


def _saved(row: type[ModelRow]) -> None:
    model, tokens = _model(row)
    with TemporaryDirectory() as name:
        save_model(Path(name) / "model", model, {})
        loaded = load_untokenized(Path(name) / "model")
    if not torch.equal(loaded(tokens).logits, model(tokens).logits):
        raise ConfigError("a loaded model has other logits than the saved one")


def _resumed(row: type[Row]) -> None:
    own: dict[str, Any] = {row.field: row.name}
    if issubclass(row, ModelRow):
        own = {f"model.{name}": value for name, value in row.settings().items()}
    with TemporaryDirectory() as name:
        text, whole, resumed = (Path(name) / part for part in ("text.txt", "whole", "resumed"))
        text.write_text(_TEXT, encoding="utf-8")
        loaded = load_recipe("gpt", {**_RUN, **own, "data.path": str(text)})
        train_run(loaded, whole, progress=SilentProgress(), device="cpu")
        shutil.copytree(whole, resumed)
        for part in ("model", "checkpoints/step-00000004"):
            shutil.rmtree(resumed / part)
        (resumed / "record.json").unlink()
        train_run(loaded, resumed, resume=True, progress=SilentProgress(), device="cpu")
        first, second = ((run / "model/model.safetensors").read_bytes() for run in (whole, resumed))
    if first != second:
        raise ConfigError("a resumed run ends with other weights than an unbroken one")


def _matched(row: type[ModelRow]) -> None:
    wide = {"d_model": 32, "d_ff": 512}
    baseline = ModelConfig.model_validate({**TINY, **wide, "block": ("attention", "ffn", "ffn")})
    arm, base = row.tiny(**wide), resolve_model(baseline, vocab_size=VOCABULARY, context=16)
    match = match_parameters(row.name, arm, base)
    for setting in match.overrides:
        arm = arm.model_copy(update={"d_ff": int(setting.removeprefix("model.d_ff="))})
    n_built = sum(parameter.numel() for parameter in compose(arm).parameters())
    if abs(n_built / count_parameters(base).total - 1) > TOLERANCE:
        raise ConfigError(f"with model.d_ff = {arm.d_ff} it has {n_built:,} parameters")


_CHECKS: dict[str, Callable[[Any], None]] = {
    "counted = built": _counted,
    "gradients": _gradients,
    "no leak from the future": _causal,
    "cached = uncached": _cached,
    "padding changes nothing": _padded,
    "saved = loaded": _saved,
    "same bits resumed": _resumed,
    "matched": _matched,
}
_FINE = ("holds", "-")
_OF_OPTIMIZERS = ("counted = built", "same bits resumed")


@checked
def check(plugin: PathText) -> Found:
    """Try every row of a plugin in small models and runs, and return what holds.

    Parameters and operations are as counted; gradients are finite differences; logits depend on no
    later token, on no cache and on no padding; a saved model is loaded, and a run resumed, to the
    bit; parameters are matched by the width. Of an optimizer, states are as declared. Raises
    ConfigError for a plugin that cannot be loaded.
    """
    [loaded] = load_plugins([plugin], tries=False)
    results: dict[str, dict[str, str]] = {}
    for (field, name), row in loaded.rows.items():
        with stage(f"trying {field} = {name}"):
            results[f"{field} = {name}"] = {check: _try(check, row, loaded) for check in _CHECKS}
    cells = [
        [check, *(row[check] if row[check] in _FINE else "FAILS" for row in results.values())]
        for check in _CHECKS
    ]
    faults = [
        hanging(f"{row}: {check}: {result}", "", "  ")
        for row, by_check in results.items()
        for check, result in by_check.items()
        if result not in _FINE
    ]
    text = "\n".join([table(["", *results], cells, width=terminal_width()), *faults])
    content = {"plugin": loaded.name, "sha256": loaded.sha256, "holds": not faults, "rows": results}
    return Found(content, text, exit_code=FAILS if faults else 0)


def _try(check: str, row: type[Row], plugin: Plugin) -> str:
    """Return "holds" or the fault of a check; "-" where the row has no such thing."""
    if not issubclass(row, ModelRow) and check not in _OF_OPTIMIZERS:
        return "-"
    try:
        with blaming(plugin):
            _CHECKS[check](row)
    except ConfigError as error:
        return str(error).removeprefix(f"plugin {plugin.name}: ")
    return "holds"
