"""Models as lm-evaluation-harness takes them."""

from typing import Any

from sublayer.api.ask import as_path
from sublayer.errors import ConfigError
from sublayer.options import PathText


def harness_model(run: PathText, *, device: str | None = None) -> Any:
    """Load a decoder or an LSTM as an ``LM`` of lm-evaluation-harness (the extra ``harness``).

    ``run`` is a run, a checkpoint or an imported folder. The result is for ``model=`` of
    ``lm_eval.simple_evaluate``. Raises ConfigError where the harness is not installed, and for a
    model that predicts no next token; CheckpointError where there is no model.
    """
    try:
        from lm_eval.api.model import LM
    except ModuleNotFoundError as error:
        raise ConfigError(
            "lm-evaluation-harness is not installed: pip install 'sublayer[harness]'"
        ) from error

    from sublayer.evaluation.prompted_likelihood import Requests
    from sublayer.loading import load
    from sublayer.objective.evaluation import context_of
    from sublayer.runs.texts import recipe_of
    from sublayer.system.machine import choose_device

    path = as_path(run)
    model = load(path, device=choose_device(device))
    requests = Requests(model, context_of(model, recipe_of(path)), str(path))

    class HarnessModel(LM):  # type: ignore[misc]
        """A model of this program, asked by the harness."""

        def loglikelihood(self, asked: list[Any]) -> list[tuple[float, bool]]:
            """Return the log-probability of each continuation, and whether it is greedy."""
            return requests.likelihoods([each.args for each in asked])

        def loglikelihood_rolling(self, asked: list[Any]) -> list[float]:
            """Return the log-probability of each text."""
            return requests.wholes([each.args[0] for each in asked])

        def generate_until(self, asked: list[Any]) -> list[str]:
            """Return what is written behind each prompt."""
            return [requests.written(*each.args) for each in asked]

        @property
        def tokenizer_name(self) -> str:
            """The tokenizer's fingerprint, under which answers are kept."""
            return str(model.tokenizer.fingerprint)

    return HarnessModel()
