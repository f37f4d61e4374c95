"""Advice for a damaged or missing object, by the kind of the object. Pure.

`object_names` tells the kind from the object's name.
"""

from __future__ import annotations

from checkpoint_store.object_names import (
    COMMITS,
    COMPACTIONS,
    DATA,
    OFFSETS,
    QUERY,
    STATE,
    STATE_PLACE,
    STORE,
    TABLE,
    VERSIONS,
    is_barrier,
    is_compacted,
)

HOW_TO_GO_BACK = (
    '"Restart from an earlier batch" (stop the query; in its checkpoint delete batch n and all '
    "later ones from commits/, and those later than n from offsets/, with their .crc files; start "
    "the query, which runs batch n again)"
)
_FROM_BACKUP = "restore it from a backup"
_OF_SAVEPOINT = "If it is of a savepoint, which has one epoch and no query, take another savepoint"
_BATCH_BACK = (
    f"{_FROM_BACKUP}, or restart the query from an earlier batch that does not need it, if there "
    f"still is one: {HOW_TO_GO_BACK}"
)
_CUT_BY_A_KILL = (
    "If it is cut because its writer was killed, in a store that shows objects before they are "
    "whole, it was never committed: delete it if it is there, and"
)

_ADVICE = {
    STORE: (
        f"{_FROM_BACKUP}. {_OF_SAVEPOINT}. If it is of a query, delete it if it is there, and "
        "start the query, which writes it again as it was if its operator's name, key and "
        "maxParallelism are the same as before. No state is lost"
    ),
    TABLE: (
        f"{_FROM_BACKUP}. It holds the table's key and options, so nothing of the table can be "
        "read or written without it. If the table has no version yet, delete it: the next write "
        "creates it anew"
    ),
    VERSIONS: (
        f"{_FROM_BACKUP}. The other versions can be read by their number. {_CUT_BY_A_KILL} "
        "write the rows again; a query does so by itself. Otherwise, if it is the newest version, "
        "delete it, and run the job again that wrote it, or let the batch of its query run again: "
        f"{HOW_TO_GO_BACK}"
    ),
    COMPACTIONS: "it is not needed, delete it",
    DATA: f"{_FROM_BACKUP}, or read a version that does not need it",
    STATE: _BATCH_BACK,
    STATE_PLACE: f"{_FROM_BACKUP} of the checkpoint. It says which object store has the state",
    COMMITS: _BATCH_BACK,
    OFFSETS: _BATCH_BACK,
    QUERY: f"{_FROM_BACKUP}. It holds the id of the query",
}
_OF_COMPACTION = (
    f"{_FROM_BACKUP}, or read a version that does not need it. If only an object in compactions/ "
    "names it, delete that object: the files that it stands for are read instead"
)


def advice_on(name: str, epoch: int | None) -> str:
    """Return advice for an object that is missing, or whose bytes differ from the written bytes.
    `epoch`: the epoch of an operator's object, None if unknown."""
    if is_compacted(name):
        return _OF_COMPACTION
    if is_barrier(name):
        again = "start the query, which runs the epoch again"
        return f"{_epoch_back(epoch)}. {_CUT_BY_A_KILL} {again}"
    of_kind = _ADVICE.get(name) or _ADVICE.get(name.partition("/")[0])
    return of_kind or _epoch_back(epoch)


def _epoch_back(epoch: int | None) -> str:
    """Return advice for a damaged or missing object of an epoch: restore the object from a backup,
    or run the query again from the epoch. The new run reads only objects of earlier epochs."""
    if epoch is None:
        batch = "an earlier batch that does not need it, if the store still has the epoch before"
    elif epoch == 0:
        batch = "batch 0, where the operator begins with nothing"
    else:
        batch = f"batch {epoch} or an earlier one, if the store still has the epoch before"
    return (
        f"{_FROM_BACKUP}. {_OF_SAVEPOINT}. If it is of a query, restart the query from {batch}: "
        f"{HOW_TO_GO_BACK}"
    )
