"""How likely an encoder-decoder finds texts behind prompts: as what was cut out of a text."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sublayer.evaluation.probes.query import EncodedQuery
from sublayer.model.context.layout import Layout
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.kernels.cross_entropy import nats_of_targets

_TOKENS = 4096


def target_nats(
    model: EncoderDecoder,
    queries: Sequence[EncodedQuery],
    first_id: int,
    sentinel_id: int,
    end_id: int,
    said: Callable[[int, int], None] = lambda n_done, n_all: None,
) -> list[NDArray[np.float64]]:
    """Compute the nats of each token of the texts, in the order of the queries.

    The source is the prompt, the first sentinel and the end, the target that sentinel and the
    text, behind ``first_id``, as in span corruption. Nothing is padded, so that queries of equal
    lengths go together.
    """
    by_lengths: dict[tuple[int, int], list[int]] = {}
    for number, query in enumerate(queries):
        by_lengths.setdefault((len(query.prompt), len(query.text)), []).append(number)
    found: dict[int, NDArray[np.float64]] = {}
    device = model.embedding.weight.device
    matrix, bias = model.output_projection()
    with evaluating(model), torch.inference_mode():
        for (n_read, n_written), numbers in by_lengths.items():
            if not n_written:
                found |= dict.fromkeys(numbers, np.zeros(0))
                continue
            size = max(1, _TOKENS // (n_read + n_written))
            for low in range(0, len(numbers), size):
                batch = numbers[low : low + size]
                sources = [[*queries[each].prompt, sentinel_id, end_id] for each in batch]
                targets = [[first_id, sentinel_id, *queries[each].text] for each in batch]
                source = torch.tensor(sources, device=device)
                target = torch.tensor(targets, device=device)
                inputs = target[:, :-1]
                memory = model.encode(source)
                final = model.hidden(inputs, Layout.causal(inputs), memory=memory).final
                embedded = model.to_embedding(final[:, 1:]).flatten(0, 1)
                nats = nats_of_targets(embedded, matrix, bias, target[:, 2:].flatten())
                rows = nats.each.double().view(len(batch), -1).cpu().numpy()
                found |= dict(zip(batch, rows, strict=True))
                said(len(found), len(queries))
    return [found[number] for number in range(len(queries))]
