"""SentencePiece's model files: opened, parsed, and stored within JSON."""

import base64
import hashlib
from importlib import import_module
from typing import Any

from sublayer.data.subwords.probe import try_file
from sublayer.errors import DataError


def open_model(model: bytes, name: str = "the file") -> Any:
    """Load a model into SentencePiece's processor; raise DataError, with ``name``, if damaged.

    It is tried in a process of its own first: a damaged model can end the process that reads it.
    """
    from sentencepiece import SentencePieceProcessor

    try_file("sentencepiece", model, f"{name} is not a SentencePiece model, or it is damaged")
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor


def parse_model(model: bytes) -> Any:
    """Parse a model's file into SentencePiece's own message; raise DataError if it is damaged."""
    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    problems: Any = import_module("google.protobuf.message")
    try:
        return messages.ModelProto.FromString(model)
    except problems.DecodeError:
        raise DataError("its SentencePiece model is damaged") from None


def packed(model: bytes) -> dict[str, str]:
    """Return a model in base64, with its checksum."""
    checksum = hashlib.sha256(model).hexdigest()
    encoded = base64.b64encode(model)
    return {"sha256": checksum, "model": encoded.decode()}


def unpacked(content: Any) -> bytes:
    """Return the model that ``packed`` encoded; raise DataError where it is damaged."""
    fields = content if isinstance(content, dict) else {}
    encoded = fields.get("model")
    try:
        model = base64.b64decode(encoded if isinstance(encoded, str) else "", validate=True)
    except ValueError as error:
        raise DataError("its SentencePiece model is not base64: it is damaged") from error
    if hashlib.sha256(model).hexdigest() != fields.get("sha256"):
        raise DataError("its SentencePiece model does not have its checksum: it is damaged")
    return model
