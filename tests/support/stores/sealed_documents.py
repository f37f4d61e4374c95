"""Documents with a right checksum, whatever their content. See checkpoint_store.files.document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def sealed(document: Mapping[str, object]) -> bytes:
    """Encode a document with the checksum of its content."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    return _canonical({**content, "checksum": hashlib.sha256(_canonical(content)).hexdigest()})


def of_version(version: int, data: bytes) -> bytes:
    """Return the document in `data` as a document of another format version."""
    return sealed({**json.loads(data), "version": version})


def _canonical(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()
