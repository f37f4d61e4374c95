"""Declaration of one state by a processor: name, kind and schema of the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

StateKind = Literal["value", "list", "map", "timers"]


PROCESSING_TIMERS, EVENT_TIMERS = "$procTimers", "$eventTimers"
"""Names of the states that hold timers. The names of a processor's states never begin with $."""


@dataclass(frozen=True, slots=True)
class StateDescriptor:
    """One registered state.

    - `value_type`: Arrow struct of a key's content. A list state has the field `list_value`, a list
      of structs. A map state has the field `map_value`, a map of structs to structs.
    - `schema_json`: the same schema in Spark's JSON form, which stores keep.
    - `ttl_ms`: time to live of a value, an element or an entry after the put; None for no expiry.
    """

    name: str
    kind: StateKind
    value_type: pa.StructType
    schema_json: str
    ttl_ms: int | None = None
