"""Files of a HuggingFace folder, only safetensors and JSON, and the hub."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.files.lines import check_no_pointer
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import check_file, describe_absence, open_file
from sublayer.interop.exits import HubModel
from sublayer.system.machine import check_memory
from sublayer.values import show

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
_BY_TRANSFORMERS = (
    "AutoModel.from_pretrained(FOLDER{}).save_pretrained(NEW), with the model's own class in place "
    f"of AutoModel, writes {WEIGHTS}"
)
_PICKLE = (
    "a pickle, which can run code and is never read: where transformers is installed, load it and "
    f"save it again: {_BY_TRANSFORMERS.format('')}"
)
_TENSORFLOW, _FLAX = (
    f"{title} weights: in an environment with transformers below 5 and {title.lower()}, "
    + _BY_TRANSFORMERS.format(f", from_{option}=True")
    for title, option in (("TensorFlow", "tf"), ("Flax", "flax"))
)
BUNDLE = (
    "a TensorFlow checkpoint, which cannot be read: name a folder with the same weights for "
    "transformers, such as albert/albert-base-v2 on the hub"
)
_GGUF = (
    "a llama.cpp file: load it with transformers' from_pretrained(FOLDER, gguf_file=NAME) and "
    "save_pretrained(NEW)"
)
_RUN_ALONE = "an inference-only format: name the folder of the model that it was converted from"
_FOREIGN_WEIGHTS = {
    "adapter_model.safetensors": "only an adapter's weights: merge it into its model first",
    "pytorch_model*.bin": _PICKLE, "tf_model*.h5": _TENSORFLOW, "flax_model*.msgpack": _FLAX,
    "*.gguf": _GGUF,
    **dict.fromkeys(("*.onnx", "onnx/*.onnx", "openvino_model.xml", "*.tflite"), _RUN_ALONE),
    **dict.fromkeys(("*.mlmodel", "*/*.mlpackage", "*.ot", "*.engine"), _RUN_ALONE),
    "*.index": BUNDLE,
    "*.safetensors": f"a file without an index: if it is the whole model, rename it {WEIGHTS}",
    **dict.fromkeys(("*.bin", "*.pt", "*.pth", "*.ckpt"), _PICKLE), "*.h5": _TENSORFLOW,
}  # fmt: skip
"""Weights in other formats by patterns of names, with the remedy; likeliest first."""
_NO_WEIGHTS = ("training_args.bin", "optimizer.*", "scheduler.*", "rng_state*", "scaler.*")
_TOKENIZER = "only a tokenizer's file: give its path as data.tokenizer"
_FOREIGN_FOLDERS = {
    "params_shapes.json":
        "the arrays of GPT-1's release: `sublayer import gpt1-numpy` reads them",
    "albert_config.json": f"ALBERT's release: {BUNDLE}", "*.index": BUNDLE,
    "dict*.txt": "a fairseq checkpoint: `sublayer import fairseq` reads fairseq's translators and "
        "Macaron Net's BERT",
    "model_index.json": "a diffusers pipeline: name the folder within it that holds the model",
    "*/config.json": "", "snapshots/*/config.json": "", "*.gguf": _GGUF,
    **dict.fromkeys(("tokenizer.json", "spiece.model", "vocab.txt"), _TOKENIZER),
}  # fmt: skip
"""Other kinds of folder by patterns of names in them; empty for a model's own folder."""
_START = 64
_SHARD = re.compile(r"[^/\\\0]+\.safetensors")
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.spm", "*.model", "*.jinja"]
"""Files that an import reads: configs, weights, tokenizers and chat templates, and no pickles."""
_OTHER_WEIGHTS = ["*/*.safetensors", "consolidated*.safetensors"]
"""Weights beside those of an import: of other programs, and of parts of a pipeline."""
_MESSAGE = "Export of sublayer"
_FORMATS = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise CheckpointError where the file is missing or holds none."""
    _check_fetched(path)
    with suppress(FileNotFoundError):
        return read_json_object(path, CheckpointError)
    # A folder of a known format is described.
    folder, foreign = path.parent, ""
    adapter = folder / ADAPTER
    if adapter.is_file():
        foreign = f", but an {ADAPTER}: {_describe_adapter(adapter)}; then import NEW"
    elif found := _found(folder, _FOREIGN_FOLDERS):
        place, what = found
        foreign = f", but {place.name}: it is {what}"
        if not what:
            foreign = f"; {place.parent} has one: name that folder"
    raise CheckpointError(f"{folder} is not a HuggingFace folder: it has no {path.name}{foreign}")


def _describe_adapter(path: Path) -> str:
    base = show(read_json(path).get("base_model_name_or_path"))
    return (
        f"it is an adapter (LoRA) of {base}, not a model. Merge it first with peft: "
        f"AutoPeftModelForCausalLM.from_pretrained({str(path.parent)!r}).merge_and_unload()"
        ".save_pretrained(NEW), or another task's class"
    )


def _found(folder: Path, foreign: Mapping[str, str]) -> tuple[Path, str] | None:
    """Return the last file of the first pattern that a folder has, and the pattern's meaning."""
    for pattern, what in foreign.items():
        for path in sorted(folder.glob(pattern), reverse=True):
            if not any(path.match(name) for name in _NO_WEIGHTS):
                return path, what
    return None


def _check_fetched(path: Path) -> None:
    """Raise CheckpointError where a file is a Git LFS pointer."""
    if not path.is_file():
        return
    with suppress(OSError), open_file(path) as file:
        try:
            check_no_pointer(path, file.read(_START))
        except DataError as error:
            raise CheckpointError(str(error)) from None


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder, from ``model.safetensors`` or its shards, onto the CPU.

    Dtypes are kept. Raises CheckpointError, with the remedy, where a file is missing, damaged or in
    another format, or an adapter is beside it; ConfigError where the files exceed the memory.
    """
    adapter = folder / ADAPTER
    if adapter.is_file() and any(folder.glob("adapter_model.*")):
        remedy = f"{_describe_adapter(adapter)}; if it is merged already, remove its files"
        raise CheckpointError(f"{adapter}: {remedy}")
    if (folder / WEIGHTS).is_file():
        _check_sizes([folder / WEIGHTS])
        return _load(folder / WEIGHTS)
    index = folder / INDEX
    if not index.is_file():
        what = ": fetch it, or write it with transformers' save_pretrained(NEW)"
        if found := _found(folder, _FOREIGN_WEIGHTS):
            what = f", but {found[0].name}: it is {found[1]}"
        raise CheckpointError(f"{folder} has no {WEIGHTS}{what}")
    weight_map: Any = read_json(index).get("weight_map")
    names = [*weight_map.values()] if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{index} has no weight_map from tensors to files")
    shards = sorted(set(names))
    for shard in shards:
        if not _SHARD.fullmatch(shard):
            raise CheckpointError(f"{index} names {show(shard)}, which is not a file beside it")
    _check_sizes([folder / shard for shard in shards])
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        of_shard = _load(folder / shard)
        if twice := sorted(of_shard.keys() & tensors.keys()):
            raise CheckpointError(f"{shard} holds {twice[0]}, as does another file of {INDEX}")
        tensors |= of_shard
    if missing := sorted(weight_map.keys() - tensors.keys()):
        shard = folder / str(weight_map[missing[0]])
        raise CheckpointError(f"{shard} lacks {missing[0]}, which {INDEX} lists there")
    return tensors


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a new file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _check_sizes(paths: Sequence[Path]) -> None:
    """Raise ConfigError where the files exceed the memory; their sizes bound their tensors."""
    n_bytes = sum(path.stat().st_size for path in paths if path.is_file())
    check_memory(n_bytes, f"to read {paths[0].parent}", "import it on a larger machine")


def _load(path: Path) -> dict[str, Tensor]:
    _check_fetched(path)
    try:
        check_file(path)
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            for name in names:
                number_format = file.get_slice(name).get_dtype()
                if number_format not in _FORMATS:
                    unread = f"as {number_format}, not as numbers of 16 bits or more"
                    raise CheckpointError(f"{path} holds {name} {unread}")
            return {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise CheckpointError(f"{describe_absence(path)}: fetch it") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged or truncated ({error}): fetch it again") from None


def fetch_model(model: HubModel) -> Path:
    """Fetch a model's files into the hub's cache, once; return their folder, named by its commit.

    No code is fetched. Without a network, or with HF_HUB_OFFLINE=1, the cache alone is read.
    Raises CheckpointError where the hub does not give it, or cannot be reached.
    """
    from huggingface_hub import errors, snapshot_download

    name, revision = model.name, model.revision
    refusals = {
        errors.GatedRepoError: f"the Hugging Face hub gives {name} only to those who accept its "
        f"terms: do so on huggingface.co/{name}, then log in by `hf auth login`",
        errors.RepositoryNotFoundError: f"the Hugging Face hub has no public model {name}: look "
        "for its name on huggingface.co/models; of a private one, log in by `hf auth login`",
        errors.RevisionNotFoundError: f"{name} has no revision {revision or 'main'} on the Hugging "
        "Face hub: give a branch, a tag or the whole id of a commit",
    }
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=_HUB_FILES, ignore_patterns=_OTHER_WEIGHTS
        )
        return Path(folder)
    except Exception as error:  # of several libraries: HTTP, TLS, the hub's
        for kind, refusal in refusals.items():
            if isinstance(error, kind):
                raise CheckpointError(refusal) from None
        chosen = f" --revision {revision}" if revision else ""
        raise CheckpointError(
            f"{model} cannot be fetched from the Hugging Face hub ({_reason(error)}): where there "
            f"is a network, `hf download {name}{chosen} --local-dir {name}` fetches it; then "
            "import that folder"
        ) from error


def upload_model(folder: Path, model: HubModel) -> tuple[HubModel, list[str]]:
    """Upload a folder to the hub as one commit; return the model of it, and the deleted files.

    A model or a branch that the hub lacks is created. Deleted are files that the folder lacks and
    that an earlier upload was the last to write, by the commit's message. Raises ConfigError where
    the hub refuses it or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoFile

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    added = [CommitOperationAdd(path.relative_to(folder).as_posix(), path) for path in files]
    try:
        api = HfApi()
        api.create_repo(model.name, exist_ok=True)
        if model.revision and not model.revision.startswith("refs/"):
            api.create_branch(model.name, branch=model.revision, exist_ok=True)
        there = api.list_repo_tree(model.name, recursive=True, expand=True, revision=model.revision)
        commits = {each.path: each.last_commit for each in there if isinstance(each, RepoFile)}
        written = {name for name, last in commits.items() if last and last.title == _MESSAGE}
        deleted = sorted(written - {each.path_in_repo for each in added})
        changes: list[CommitOperationAdd | CommitOperationDelete] = [*added]
        changes += [CommitOperationDelete(name) for name in deleted]
        commit = api.create_commit(
            model.name, changes, commit_message=_MESSAGE, revision=model.revision
        )
    except Exception as error:  # of several libraries: HTTP, TLS, the hub's
        raise ConfigError(
            f"{model} cannot be written ({_reason(error)}): log in by `hf auth login` with a token "
            "that may write, or export to a folder and upload it by `hf upload`"
        ) from error
    return HubModel(model.name, commit.oid), deleted


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
