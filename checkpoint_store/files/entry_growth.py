"""Growth of a state: the number of entries that a changelog's rows add to each key group.

A file may note the growth of its states in the metadata of its schema. A reader of the note can
count the entries of a state without looking up which keys are new.

    cowstate.growth    {state: [[gap, …], [entries, …]]}: JSON, deflated by zlib, as base64

Both lists of a state have an element for each key group, in ascending order. `entries`: by how many
entries the key group grows. `gap`: the distance from the previous key group, or from 0 for the
first key group. A key group without growth may be left out. A state without a count is left out.

Arrow writes the metadata of a schema twice and does not compress the metadata, so the note must be
short. Gaps are small and repeat, so a key group takes a few bits.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa

Growth = dict[str, dict[int, int]]
"""State -> key group -> entries."""

_GROWTH = b"cowstate.growth"


def with_growth(rows: pa.Table, growth: Mapping[str, Mapping[int, int]]) -> pa.Table:
    """Note the growth of states in the metadata of the schema of `rows`. `growth`: by state and key
    group, the number of added entries. Return `rows` unchanged if `growth` is empty."""
    if not growth:
        return rows
    pairs = {state: _pairs(of_state) for state, of_state in growth.items()}
    text = json.dumps(pairs, sort_keys=True, separators=(",", ":"))
    noted = base64.b64encode(zlib.compress(text.encode()))
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), _GROWTH: noted})


def _pairs(of_state: Mapping[int, int]) -> tuple[list[int], list[int]]:
    key_groups = sorted(of_state)
    gaps = [after - before for before, after in pairwise([0, *key_groups])]
    return gaps, [of_state[key_group] for key_group in key_groups]


def noted_growth(schema: pa.Schema) -> Growth:
    """Read the note of `with_growth` from a file's schema: the number of added entries, by state
    and key group. Empty if the schema has no note. Raises ValueError for an invalid note."""
    noted = (schema.metadata or {}).get(_GROWTH)
    if noted is None:
        return {}
    try:
        pairs: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(noted, validate=True)))
        return {state: _by_key_group(*of_state) for state, of_state in pairs.items()}
    except (AttributeError, TypeError, zlib.error) as error:
        raise ValueError(f"the growth of states is {noted!r}") from error


def _by_key_group(gaps: list[int], entries: list[int]) -> dict[int, int]:
    key_groups = accumulate(int(gap) for gap in gaps)
    return {each: int(number) for each, number in zip(key_groups, entries, strict=True)}
