"""The files of a snapshot, as tables."""

from __future__ import annotations

import pyarrow as pa

from spark_state.keyed_state.full_snapshot import KeyedStateSnapshot
from tests.support.operators.keyed_state_backend_contract import WrittenFiles


def tables_of(snapshot: KeyedStateSnapshot) -> list[pa.Table]:
    """The rows of each file of the snapshot."""
    written = WrittenFiles()
    snapshot.write(written)
    return [table for table, _ in written.files]
