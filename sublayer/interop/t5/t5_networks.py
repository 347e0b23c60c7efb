"""Names of T5's feed-forward networks, ``feed_forward_proj``, to and from ours."""

from sublayer.config.architecture.feedforward import FFNS
from sublayer.interop.activations import NAMES, activation_fields

_GATED = "gated-"
# Of a gate alone the class takes "gelu" for the tanh form, whatever it is elsewhere; the exact one
# has another name. The first name of several is written.
_GATES: dict[str, tuple[str, str]] = {
    "gelu": ("gelu", "tanh"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
    "sigmoid": ("sigmoid", "tanh"),
    "linear": ("identity", "tanh"),
}
NETWORKS: tuple[str, ...] = (*NAMES, *(_GATED + name for name in _GATES))
"""The values of ``feed_forward_proj`` that name one of our networks."""

ACTIVATIONS: tuple[str, ...] = tuple(dict.fromkeys((*NAMES, *_GATES)))
"""The values of ``dense_act_fn`` that name what one of our networks computes."""


def network_fields(name: str) -> dict[str, str]:
    """Return the fields ``ffn`` and ``gelu`` of the network that ``feed_forward_proj`` names.

    ``name`` is one of ``NETWORKS``.
    """
    if not name.startswith(_GATED):
        return activation_fields(*NAMES[name])
    activation, gelu = _GATES[name.removeprefix(_GATED)]
    return {"ffn": _gated_network(activation), "gelu": gelu}


def network_name(ffn: str, gelu: str) -> str:
    """Return the ``feed_forward_proj`` of a network; ``gelu`` counts only where it is one.

    The network is one that ``has_network_name``.
    """
    row = FFNS[ffn]
    form = gelu if row.activation == "gelu" else "tanh"
    known = _GATES if row.is_gated else NAMES
    wanted = (row.activation, form)
    names = [name for name, meaning in known.items() if meaning == wanted]
    return (_GATED if row.is_gated else "") + names[0]


def has_network_name(ffn: str) -> bool:
    """Return whether T5's class has a name for a network."""
    row = FFNS.get(ffn)
    if row is None:
        return False
    known = _GATES if row.is_gated else NAMES
    return row.activation in [activation for activation, _ in known.values()]


def computed_activation(name: str) -> str:
    """Return what the class itself makes of a ``feed_forward_proj``, as ``dense_act_fn``."""
    if name == f"{_GATED}gelu":
        return "gelu_new"
    return name.removeprefix(_GATED)


def is_gated(name: str) -> bool:
    """Return whether a ``feed_forward_proj`` names a network with a gate."""
    return name.startswith(_GATED)


def _gated_network(activation: str) -> str:
    found = [name for name, row in FFNS.items() if row.is_gated and row.activation == activation]
    return found[0]
