"""Activations by transformers' names, to and from our feed-forward networks."""

from sublayer.config.architecture.feedforward import FFNS

# transformers' activation -> ours (see ``ACTIVATIONS`` of
# ``sublayer.config.architecture.feedforward``), and the form of a GELU, whose two tanh forms are
# one formula. The first name of several is written.
NAMES: dict[str, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}


def network_activation(ffn: str) -> str | None:
    """Return the activation of a network without a gate; None for a gated or unknown one."""
    row = FFNS.get(ffn)
    if row is None or row.is_gated:
        return None
    return row.activation


def has_activation_name(ffn: str) -> bool:
    """Return whether transformers has a name for what a network computes between its products.

    It has none for that of a network with a gate.
    """
    named = [activation for activation, _ in NAMES.values()]
    return network_activation(ffn) in named


def activation_name(ffn: str, gelu: str) -> str:
    """Return transformers' name of a network's activation; ``gelu`` counts only where it is one.

    The network is one that ``has_activation_name``.
    """
    activation = network_activation(ffn)
    form = gelu if activation == "gelu" else "tanh"
    wanted = (activation, form)
    names = [name for name, meaning in NAMES.items() if meaning == wanted]
    return names[0]


def activation_fields(activation: str, gelu: str) -> dict[str, str]:
    """Return the fields ``ffn`` and ``gelu`` of the plain network that has an activation."""
    networks = [name for name in FFNS if network_activation(name) == activation]
    return {"ffn": networks[0], "gelu": gelu}


def named_activation_fields(name: str) -> dict[str, str]:
    """Return the fields ``ffn`` and ``gelu`` of the plain network that transformers names so.

    ``name`` is one of ``NAMES``.
    """
    return activation_fields(*NAMES[name])
