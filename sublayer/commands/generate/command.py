"""``sublayer generate``: continue a prompt, or fill the gaps of a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sublayer.commands.generate.decoder import continue_prompt
from sublayer.commands.generate.gaps import complete_prompt
from sublayer.commands.generate.options import (
    Asked,
    ContinuationsOption,
    PrecisionOption,
    PromptOption,
    SearchOption,
    SeedOption,
    StopOption,
    TemperatureOption,
    TokensOption,
    TopKOption,
    TopPOption,
    WindowOption,
)
from sublayer.commands.generate.prompt import check_texts
from sublayer.commands.shared.base import DeviceOption, JsonOption, RunArgument
from sublayer.errors import ConfigError
from sublayer.system.stages import stage

if TYPE_CHECKING:
    import torch

    from sublayer.model.decoder import Decoder
    from sublayer.model.encoder_decoder import EncoderDecoder

EXAMPLE = 'sublayer generate runs/book --prompt "The " --tokens 200 --temperature 0.8'


def command(
    run: RunArgument,
    prompt: PromptOption,
    tokens: TokensOption = None,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    stop: StopOption = None,
    seed: SeedOption = None,
    batch: ContinuationsOption = 1,
    beam: SearchOption = None,
    window: WindowOption = None,
    precision: PrecisionOption = "float32",
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue a prompt. One continuation appears as it is made; several, each after a line,
    when all are done.

    An encoder-decoder that was trained on gaps fills those of the text, which <extra_id_0>,
    <extra_id_1> ... stand for: greedy, by a beam, or drawn.
    """
    stops = stop or []
    asked = Asked(
        prompt, tokens, temperature, top_k, top_p, stops, seed, batch, beam, window, as_json
    )
    check_texts(prompt, stops)
    asked.check()

    with stage("starting PyTorch"):
        from sublayer.decode.sample import Sampling
        from sublayer.model.decoder import Decoder
        from sublayer.system.machine import choose_device

    sampling = Sampling(1.0 if temperature is None else temperature, top_k, top_p)
    model = _load(run, choose_device(device), precision)
    if isinstance(model, Decoder):
        continue_prompt(run, model, sampling, asked)
    else:
        complete_prompt(run, model, sampling, asked)


def _load(
    run: Path, device: "torch.device", precision: Literal["float32", "bfloat16"]
) -> "Decoder | EncoderDecoder":
    """Load a model; raise ConfigError where it writes no text."""
    import torch

    from sublayer.loading import load
    from sublayer.model.decoder import Decoder
    from sublayer.model.encoder_decoder import EncoderDecoder

    model = load(run, device=device, dtype=getattr(torch, precision))
    if not isinstance(model, Decoder | EncoderDecoder):
        raise ConfigError(
            f"{run} is an {model.config.kind}, which predicts no next token: name a decoder's run"
        )
    return model
