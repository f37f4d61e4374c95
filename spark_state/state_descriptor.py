"""What a processor declares about one state: its name, its kind and the schema of its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

StateKind = Literal["value"]


@dataclass(frozen=True, slots=True)
class StateDescriptor:
    """One registered state.

    `value_type`: the Arrow struct of its value; `schema_json`: the same schema as Spark writes
    it, which is what stores keep and errors show.
    """

    name: str
    kind: StateKind
    value_type: pa.StructType
    schema_json: str
