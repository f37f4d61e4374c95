"""Files of Spark whose first line is their version and whose second line is JSON. Pure.

    offsets/<batch>                          v1, v2     a batch that was planned. Other lines: the
                                                        offsets; v2 puts the name of its source
                                                        before each
    commits/<batch>                          v1 to v3   a batch that is done. v2 adds the ids of
                                                        states, v3 what Spark notes of the sink
    state/<operator>/_metadata/metadata      v1         an operator and its stores
    state/<operator>/_metadata/v2/<batch>    v2         the same of a transformWithState

The second line has the same entries in each version that cowstate knows, and later ones add some.
What a version beyond these means nobody can know, so a file of such a version is an error.
Source: OffsetSeqLog, CommitLog and OperatorStateMetadataUtils of Spark 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.object_names import COMMITS, OFFSETS, STATE

_NEWEST = {OFFSETS: 2, COMMITS: 3, STATE: 2}
_VERSION = re.compile(r"v([1-9]\d{0,8})", re.ASCII)


def parse_log_entry(data: bytes, source: Source) -> dict[str, Any]:
    """The JSON of a file, whose kind its name says. Raises CorruptObjectError, and
    UnsupportedFormatError for a version that a later Spark writes."""
    newest = _NEWEST[source.name.partition("/")[0]]
    try:
        lines = data.decode().split("\n")
        check_version(lines[0].rstrip(), newest, source)
        content = json.loads(lines[1])
        if not isinstance(content, dict):
            raise ValueError("its second line is not a JSON object")
    except (LookupError, ValueError) as error:
        raise CorruptObjectError(source.url, source.name, _problem(error), source.epoch) from error
    return content


def check_version(text: str, newest: int, source: Source) -> None:
    """Raises ValueError if a text is no version of Spark's, UnsupportedFormatError if it is later
    than the newest one that is known."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"it begins with {text[:20]!r} instead of v and a number")
    if int(match[1]) > newest:
        raise UnsupportedFormatError(source.url, source.name, int(match[1]), newest)


def newest_version_folder(folders: Iterable[str], source: Source) -> int | None:
    """The version of the newest folder v<version> beside the file of an operator that `source`
    names; None if there is none. Raises UnsupportedFormatError for a later version."""
    versions = [int(match[1]) for name in folders if (match := _VERSION.fullmatch(name))]
    newest = max(versions, default=None)
    if newest is not None:
        check_version(f"v{newest}", _NEWEST[STATE], source)
    return newest


def _problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"its second line is not JSON: {error}"
    return "it has one line only" if isinstance(error, IndexError) else str(error)
