"""Settings of generation in HuggingFace folders: ends of a text, chat templates, other defaults."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sublayer.config.recipe import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer, read_text
from sublayer.data.tokenizers.settings import CONFIG_NAME, read_settings
from sublayer.errors import CheckpointError, DataError
from sublayer.files.parsing import check_typed, read_json_object
from sublayer.numbers import count
from sublayer.text_model import Generation
from sublayer.values import show

FILE = "generation_config.json"
_TEMPLATE, _FURTHER_TEMPLATES = "chat_template.jinja", "additional_chat_templates/*.jinja"
_DEFAULT = "default"
_EOS = "eos_token_id"
_IDS = ("bos_token_id", _EOS, "pad_token_id", "decoder_start_token_id")
_FIRST = "forced_bos_token_id"
_OF_FILE = ("_from_model_config", "_commit_hash", "transformers_version", "use_cache")
_OUTPUTS = ("output_attentions", "output_hidden_states")


def read_generation(
    folder: Path, fields: Mapping[str, Any], config: ResolvedModel, tokenizer: Tokenizer | None
) -> Generation:
    """Read a folder's settings of generation; ``fields`` are those of its ``config.json``.

    Raises CheckpointError for another end than ids, DataError for damaged chat templates.
    """
    path = folder / FILE
    settings = {_FIRST: fields[_FIRST]} if fields.get(_FIRST) is not None else {}
    if path.is_file():
        settings = read_json_object(path, CheckpointError)
    ends = settings.get(_EOS)
    source, ends = (FILE, ends) if ends is not None else ("config.json", fields.get(_EOS))
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(type(id_) is int for id_ in listed):
        raise CheckpointError(
            f"{folder / source}: {_EOS} = {show(ends)} is not an id, nor a list of ids"
        )
    end_id = None if tokenizer is None else tokenizer.end_id
    is_decoder = config.kind == "decoder"  # other kinds write up to their separator
    known = range(config.vocab_size if is_decoder else 0)
    # An end is forced at the greatest length alone, where ours closes a text too.
    dropped = ("max_length", "forced_eos_token_id", *_IDS, *_OF_FILE, *_OUTPUTS)
    return Generation(
        tuple(id_ for id_ in dict.fromkeys(listed) if id_ in known and id_ != end_id),
        {
            name: value
            for name, value in settings.items()
            if name.isidentifier() and name not in dropped
        },
        _read_templates(folder),
    )


def describe_kept(generation: Generation) -> str | None:
    """Describe the settings that an import keeps for an export alone; None without any."""
    kept = []
    if generation.settings:
        kept.append(f"{', '.join(sorted(generation.settings))} of {FILE}")
    if generation.chat_templates:
        n_templates = len(generation.chat_templates)
        kept.append(f"{count(n_templates, 'chat template')}, never run")
    return f"{'; '.join(kept)}: only written again by export" if kept else None


def generation_file(
    config: Mapping[str, Any], generation: Generation, *, max_len: int
) -> dict[str, bytes]:
    """Return ``generation_config.json``, by its name, with the ids of a model's ``config.json``."""
    content = {"max_length": max_len, **generation.settings}
    for name in _IDS:
        if config.get(name) is not None:
            content[name] = config[name]
    if generation.stop_ids:
        first = [] if content.get(_EOS) is None else [content[_EOS]]
        content[_EOS] = [*dict.fromkeys([*first, *generation.stop_ids])]
    return {FILE: json.dumps(content, indent=2).encode() + b"\n"}


def template_settings(generation: Generation) -> dict[str, Any]:
    """Return the chat templates as a field of ``tokenizer_config.json``; empty without any."""
    templates = generation.chat_templates
    if not templates:
        return {}
    if [*templates] == [_DEFAULT]:
        return {"chat_template": templates[_DEFAULT]}
    listed = [{"name": name, "template": text} for name, text in templates.items()]
    return {"chat_template": listed}


def _read_templates(folder: Path) -> dict[str, str]:
    """Read a folder's chat templates by name; their own files replace those of its settings."""
    files = {path.stem: path for path in sorted(folder.glob(_FURTHER_TEMPLATES))}
    if (folder / _TEMPLATE).is_file():
        files = {_DEFAULT: folder / _TEMPLATE, **files}
    if files:
        return {name: read_text(path) for name, path in files.items()}
    value = read_settings(folder).get("chat_template")
    source = f"{folder / CONFIG_NAME}: chat_template"
    if value is None:
        return {}
    if isinstance(value, str):
        return {_DEFAULT: value}
    if isinstance(value, list):
        pairs = check_typed(value, list[dict[str, str]], source, DataError)
        if not all({"name", "template"} <= pair.keys() for pair in pairs):
            raise DataError(f"{source} is damaged: each must have a name and a template")
        value = {pair["name"]: pair["template"] for pair in pairs}
    return check_typed(value, dict[str, str], source, DataError)
