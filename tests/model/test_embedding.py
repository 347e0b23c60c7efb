"""The embedding matrix, its scale and its projection."""

from collections.abc import Callable

import torch

from sublayer.config.model import ModelConfig
from sublayer.model.layers.embedding import TokenEmbedding


def filled(config: ModelConfig) -> TokenEmbedding:
    embedding = TokenEmbedding(config)
    with torch.no_grad():
        for parameter in embedding.parameters():
            parameter.normal_()
    return embedding


def test_a_token_is_its_row(small_config: Callable[..., ModelConfig]) -> None:
    embedding = filled(small_config())
    assert torch.equal(embedding(torch.tensor([[3, 0]]))[0], embedding.weight[[3, 0]])
    assert embedding.projection is None


def test_the_scale_is_the_root_of_the_tables_width(
    small_config: Callable[..., ModelConfig],
) -> None:
    embedding = filled(small_config(d_embed=4, embedding_scale="sqrt"))
    assert embedding.projection is not None
    expected = embedding.projection(2 * embedding.weight[[5]])
    torch.testing.assert_close(embedding(torch.tensor([[5]]))[0], expected)


def test_a_factorised_table_is_projected_to_the_models_width(
    small_config: Callable[..., ModelConfig],
) -> None:
    for d_embed in (5, 7):
        embedding = filled(small_config(d_embed=d_embed))
        assert embedding.weight.shape == (17, d_embed)
        assert embedding(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 6)


def test_the_residual_stream_stays_in_float32_under_autocast(
    small_config: Callable[..., ModelConfig],
) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (
            filled(small_config(d_embed=5))(torch.zeros(1, 2, dtype=torch.long)).dtype
            == torch.float32
        )
