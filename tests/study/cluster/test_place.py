"""What --on names, and what contradicts it."""

from importlib.util import find_spec
from typing import Any

import pytest

from sublayer.api.training import compare
from sublayer.errors import ConfigError, DataError
from sublayer.study.cluster.place import ClusterPlace, parse_place

SHORT: dict[str, Any] = {"overrides": ["train.steps=2"], "vary": ["model.ffn=gelu,swiglu"]}


@pytest.mark.parametrize("text", ["ray", "ray:10.0.0.1:6379", "slurm", "slurm:gpu-long"])
def test_a_place_is_said_as_it_is_read(text):
    place = parse_place(text)
    assert str(place) == text
    assert place.kind in ("ray", "slurm")


def test_an_address_may_have_colons():
    assert parse_place("ray:10.0.0.1:6379") == ClusterPlace("ray", "10.0.0.1:6379")


@pytest.mark.parametrize("text", ["", "dask", "ray:", "slurm:", ":gpu", "Slurm"])
def test_what_is_no_cluster_is_refused(text):
    with pytest.raises(ConfigError, match=r"is neither ray\[:ADDRESS\] nor slurm\[:PARTITION\]"):
        parse_place(text)


def test_a_gateway_of_clients_is_refused():
    with pytest.raises(ConfigError, match="names a gateway of clients"):
        parse_place("ray://10.0.0.1:10001")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"jobs": 2}, "--jobs 2 contradicts --on ray: it is for one machine"),
        ({"match": "time"}, "--on ray contradicts match = time"),
        ({"overrides": ["train.minutes=1"]}, "--on ray contradicts train.minutes = 1"),
    ],
)
def test_what_contradicts_a_cluster_is_refused_before_it_is_looked_for(asked, line, tmp_path):
    with pytest.raises(ConfigError, match=line):
        compare("gpt", **({**SHORT, **asked}), on="ray", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("on", "library"), [("ray", "ray"), ("slurm", "submitit")])
def test_the_extra_is_named_where_it_is_missing(on, library, tmp_path):
    if find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    line = rf"studies with --on {on} need {library}: pip install 'sublayer\[cluster\]'"
    with pytest.raises(DataError, match=line):
        compare("gpt", **SHORT, on=on, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("on", "line"),
    [
        ("ray:127.0.0.1:1", "--on ray:127.0.0.1:1: nothing answers there"),
        ("ray:here", "--on ray:here names no HOST:PORT"),
    ],
)
def test_a_cluster_of_ray_that_is_not_there_is_a_line(on, line, tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=line):
        compare("gpt", **SHORT, on=on, out=tmp_path / "out")


def test_slurm_that_is_not_there_is_a_line(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="--on slurm: no sinfo here, or no answer from it"):
        compare("gpt", **SHORT, on="slurm", out=tmp_path / "out")


def test_a_slurm_whose_controller_does_not_answer_is_a_line(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\nprintf 'sinfo: error: %500s\\nno controller' >&2\nexit 1\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    line = (
        r"--on slurm: no Slurm answers \(.{,120}no controller\): start compare on a machine of its"
    )
    with pytest.raises(ConfigError, match=line):
        compare("gpt", **SHORT, on="slurm", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
