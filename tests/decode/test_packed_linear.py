"""A product with fixed weights is the product of any linear map."""

import pytest
import torch
import torch.nn.functional as F

from sublayer.decode import packed_linear
from sublayer.decode.packed_linear import pack_linear, takes_vectors

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("maker", ["Intel", "AMD"])
@pytest.mark.parametrize("has_packing", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("n_rows", [1, 2, 16, 67])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_products_are_those_of_a_linear_map(
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    n_rows: int,
    has_bias: bool,
    has_packing: bool,
    maker: str,
) -> None:
    monkeypatch.setattr(packed_linear, "processor", lambda: maker)
    if not has_packing:
        monkeypatch.setattr(packed_linear, "_packs", lambda matrix: False)
    generator = torch.Generator().manual_seed(4)
    matrix, x = (
        torch.randn(size, generator=generator).to(dtype) for size in ((37, 24), (n_rows, 24))
    )
    bias = torch.randn(37, generator=generator).to(dtype) if has_bias else None
    expected = F.linear(x.double(), matrix.double(), None if bias is None else bias.double())
    with torch.inference_mode():
        multiply = pack_linear(matrix, bias, n_rows)
        found = multiply(x[0])[None] if takes_vectors(matrix, n_rows) else multiply(x)
    assert found.dtype == dtype
    scale = expected.abs().max().item()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCES[dtype] * scale)
