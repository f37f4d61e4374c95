"""By how many entries the rows of a changelog make each key group of a state grow.

    cowstate.growth    {state: {key group: entries}}, JSON; a key group that does not grow or shrink
                       is missing, a state is missing whose growth nobody has counted

It is part of the metadata of a file's schema. A file does not need it: who applies the rows to a
state that counts its entries saves itself to look up which keys are new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

Growth = dict[str, dict[int, int]]
"""State -> key group -> entries."""

_GROWTH = b"cowstate.growth"


def with_growth(rows: pa.Table, growth: Mapping[str, Mapping[int, int]]) -> pa.Table:
    """The rows, with a note of the growth of states if there are any."""
    if not growth:
        return rows
    noted = json.dumps(growth, sort_keys=True, separators=(",", ":")).encode()
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), _GROWTH: noted})


def noted_growth(schema: pa.Schema) -> Growth:
    """What a file with this schema notes; empty if it notes nothing. Raises ValueError."""
    noted = (schema.metadata or {}).get(_GROWTH)
    if noted is None:
        return {}
    try:
        return {
            state: {int(key_group): int(entries) for key_group, entries in of_state.items()}
            for state, of_state in json.loads(noted).items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the growth of states is {noted!r}") from error
