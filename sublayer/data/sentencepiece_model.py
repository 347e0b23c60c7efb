"""SentencePiece's model files: opened, and kept within JSON."""

import base64
import hashlib
from importlib import import_module
from typing import Any

from sublayer.data.probe import try_file
from sublayer.errors import DataError


def open_model(model: bytes, name: str = "the file") -> Any:
    """Give SentencePiece's processor of a model. Raises DataError, by its ``name``, where the bytes are none."""
    from sentencepiece import SentencePieceProcessor

    try_file("sentencepiece", model, f"{name} is not a SentencePiece model, or it is damaged")
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor


def parse_model(model: bytes) -> Any:
    """Give all that a model's file says, as SentencePiece's own message. Raises DataError where it is damaged."""
    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    problems: Any = import_module("google.protobuf.message")
    try:
        return messages.ModelProto.FromString(model)
    except problems.DecodeError:
        raise DataError("its SentencePiece model is damaged") from None


def packed(model: bytes) -> dict[str, str]:
    """Give a model in base64, with its checksum."""
    return {"sha256": hashlib.sha256(model).hexdigest(), "model": base64.b64encode(model).decode()}


def unpacked(content: Any) -> bytes:
    """Give the model that ``packed`` gave. Raises DataError where it is damaged."""
    found = content if isinstance(content, dict) else {}
    encoded = found.get("model")
    try:
        model = base64.b64decode(encoded if isinstance(encoded, str) else "", validate=True)
    except ValueError as error:
        raise DataError("its SentencePiece model is not base64: it is damaged") from error
    if hashlib.sha256(model).hexdigest() != found.get("sha256"):
        raise DataError("its SentencePiece model does not have its checksum: it is damaged")
    return model
