"""Where the tests of this folder compute: on a GPU, and on a CPU by what a GPU would take."""

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """The GPU; or the CPU by the operators that a GPU takes, instead of by kernels of its own."""
    if request.param == "cpu":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        # As exact as the CPU's products.
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return torch.device(request.param)


@pytest.fixture(scope="session")
def texts(workshop):
    return workshop.path


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
