"""What a processor declares about one state: its name, its kind and the schema of its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

StateKind = Literal["value", "list", "map", "timers"]


PROCESSING_TIMERS, EVENT_TIMERS = "$procTimers", "$eventTimers"
"""The names of the states that hold timers. Names of a processor's states do not begin so."""


@dataclass(frozen=True, slots=True)
class StateDescriptor:
    """One registered state.

    `value_type`: the Arrow struct of what a key has. That of a list state has the field
    `list_value`, a list of structs; that of a map state `map_value`, a map of structs to structs.
    `schema_json`: the same schema as Spark writes it, which is what stores keep. `ttl_ms`: how long
    a value, an element or an entry lives after it was put; None if it does not expire.
    """

    name: str
    kind: StateKind
    value_type: pa.StructType
    schema_json: str
    ttl_ms: int | None = None
