"""Files of Spark with a version in the first line and JSON in the second line. Pure.

    offsets/<batch>                          v1, v2     a planned batch. Further lines: the offsets;
                                                        v2 puts the source's name before each offset
    commits/<batch>                          v1 to v3   a committed batch. v2 adds the ids of
                                                        states, v3 Spark's notes about the sink
    state/<operator>/_metadata/metadata      v1         an operator and its stores
    state/<operator>/_metadata/v2/<batch>    v2         the same for a transformWithState

Each of these versions keeps the entries of the JSON of the version before, and may add entries. So
one parser reads all these versions. A later version is an error, because its entries may mean
something else. Source: OffsetSeqLog, CommitLog and OperatorStateMetadataUtils of Spark 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from checkpoint_store.errors import UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.object_names import COMMITS, OFFSETS, STATE

_NEWEST = {OFFSETS: 2, COMMITS: 3, STATE: 2}
_VERSION = re.compile(r"v([1-9]\d{0,8})", re.ASCII)


def parse_log_entry(data: bytes, source: Source) -> dict[str, Any]:
    """Parse the JSON of a file; the name in `source` tells the kind of file. Raises
    CorruptObjectError, and UnsupportedFormatError for a version of a later Spark."""
    newest = _NEWEST[source.name.partition("/")[0]]
    try:
        version, _, rest = data.decode().partition("\n")
        check_version(version.rstrip(), newest, source)
        content = json.loads(rest.partition("\n")[0])
        if not isinstance(content, dict):
            raise ValueError("its second line is not a JSON object")
    except ValueError as error:
        raise source.corrupt(f"not a version and a line of JSON: {error}") from error
    return content


def check_version(text: str, newest: int, source: Source) -> None:
    """Check the version of a file. Raises ValueError if `text` is not a version of Spark's, and
    UnsupportedFormatError if the version is later than `newest`."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"it begins with {text[:20]!r} instead of v and a number")
    if int(match[1]) > newest:
        raise UnsupportedFormatError(source.url, source.name, int(match[1]), newest)


def newest_version_folder(folders: Iterable[str], source: Source) -> int | None:
    """The version of the newest folder v<version> beside the operator's file `source`; None if
    there is no such folder. Raises UnsupportedFormatError for a version of a later Spark."""
    versions = [int(match[1]) for name in folders if (match := _VERSION.fullmatch(name))]
    newest = max(versions, default=None)
    if newest is not None:
        check_version(f"v{newest}", _NEWEST[STATE], source)
    return newest
