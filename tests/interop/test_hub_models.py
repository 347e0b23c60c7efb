"""Models of the hub by name: fetched without pickles, or refused with the way by hand."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
from huggingface_hub import errors

from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.exchange import import_huggingface
from sublayer.interop.huggingface.hub_models import is_hub_name
from sublayer.loading import load
from tests.interop.tiny import tiny


def test_a_model_is_fetched_by_name_without_its_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tiny("gpt2").save(tmp_path / "served")
    (served / "pytorch_model.bin").write_bytes(b"a pickle")

    def download(name: str, *, allow_patterns: list[str]) -> str:
        assert name == "team/tiny"
        (tmp_path / "cache").mkdir()
        for pattern in allow_patterns:
            for path in served.glob(pattern):
                shutil.copy(path, tmp_path / "cache" / path.name)
        return str(tmp_path / "cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    import_huggingface(Path("team/tiny"), tmp_path / "imported")
    assert load(tmp_path / "imported").config.d_model == 12
    fetched = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert fetched == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (errors.RepositoryNotFoundError("none", response=Mock()), "has no model of that name"),
        (OSError("no route\nto host"), r"\(no route to host\): .*`hf download team/none"),
        (ValueError(""), r"\(ValueError\)"),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_fetched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, message: str
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=problem))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"there is no folder team/none, and .*{message}"):
        import_huggingface(Path("team/none"), tmp_path / "imported")
    assert not (tmp_path / "imported").exists()
    assert [is_hub_name(text) for text in ("gpt2", "a/b", "a/b/c", "../gpt2")] == [
        *(True, True, False, False)
    ]
