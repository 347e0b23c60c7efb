"""Models of the hub by name: fetched from a server that answers as the hub does, or refused."""

import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sublayer.interop.huggingface.hub_models import is_hub_name

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Serve a folder as the model ``team/tiny``."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.folder = folder
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/team/tiny"):
            files = sorted(self.folder.iterdir())
            if "/tree/" in path:
                body = json.dumps([self._described(file) for file in files]).encode()
            else:
                names = [{"rfilename": file.name} for file in files]
                body = json.dumps({"id": "team/tiny", "sha": COMMIT, "siblings": names}).encode()
            self._send(200, body, {"Content-Type": "application/json"}, has_body=has_body)
            return
        file = self.folder / path.rpartition("/")[2]
        if path.startswith("/team/tiny/resolve/") and file.is_file():
            body = file.read_bytes()
            headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
            self._send(200, body, headers, has_body=has_body)
            return
        missing = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
        self._send(404, b"{}", missing, has_body=has_body)

    def _described(self, file: Path) -> dict[str, object]:
        content = file.read_bytes()
        oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        return {"type": "file", "path": file.name, "size": len(content), "oid": oid}

    def _send(self, code: int, body: bytes, headers: dict[str, str], *, has_body: bool) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            self.wfile.write(body)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """Serve a tiny GPT-2, with a pickle beside it, and return the server's address."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    folder = tmp_path / "served"
    config = GPT2Config(vocab_size=17, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Hub, folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def _import(name: str, endpoint: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(tmp_path / "hub"),
        "NO_PROXY": "127.0.0.1",
    }
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-m", "sublayer", "import", "huggingface", name]
    return subprocess.run(
        [*command, "--out", "imported"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_model_is_fetched_by_name_without_its_pickles(hub: str, tmp_path: Path) -> None:
    ended = _import("team/tiny", hub, tmp_path)
    assert ended.returncode == 0, ended.stderr
    config = json.loads((tmp_path / "imported" / "config.json").read_text())
    assert config["model"]["d_model"] == 8
    assert list((tmp_path / "hub").rglob("model.safetensors"))
    assert not list((tmp_path / "hub").rglob("*.bin"))


@pytest.mark.all
def test_a_name_that_the_hub_lacks_is_refused(hub: str, tmp_path: Path) -> None:
    ended = _import("team/none", hub, tmp_path)
    assert ended.returncode == 2
    assert "the Hugging Face hub has no model of that name" in ended.stderr
    assert not (tmp_path / "imported").exists()


@pytest.mark.all
def test_without_a_network_the_way_by_hand_is_given(tmp_path: Path) -> None:
    ended = _import("team/tiny", "http://127.0.0.1:9", tmp_path)
    assert ended.returncode == 2
    assert "`hf download team/tiny --local-dir team/tiny`" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("openai-community/gpt2", True),
        ("gpt2", True),
        ("a/b/c", False),
        ("../gpt2", False),
    ],
)
def test_names_of_the_hub_are_recognised(text: str, is_name: bool) -> None:
    assert is_hub_name(text) == is_name
