"""Facts of a state in an offset, by which a stream notices that another state is at its URL.

    {"version": 7, …, "watermarks": {"0": 1767225600000}, "table": {"keys": ["id"], …},
     "committed_ms": 1767225601234}

    watermarks      the watermark of each writer of the state, in ms since 1970
    table           the facts that were fixed when the state was created
    committed_ms    of a table: the commit time of the version
    attempt         of a query's checkpoint: tells two runs of a batch apart
    run             of an operator: the number of the run that wrote the epoch

An operator may go back and run an epoch again. Then the live timeline (see run_lineage) no longer
has the epoch that the stream has read. The stream does as follows:

    no run has written the epoch anew yet                                         wait
    another run wrote the epoch anew from the same base, with the same changes    go on
    anything else, such as other changes, or several epochs to run again          an error
"""

from __future__ import annotations

from typing import Any

from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.states.state_history import StateHistory, StateVersion
from checkpoint_store.tables.table_history import TableHistory
from datasources.errors import EpochsTakenBackError, StateReplacedError
from datasources.options.version_choice import version_at
from datasources.streams.stream_offset import Offset

Facts = dict[str, Any]

_COMPARED = {"committed_ms": "commit time of version {} (ms)", "attempt": "run of batch {}"}


def fixed_facts(history: StateHistory) -> Facts:
    """The facts that were fixed when a table, the store of an operator, or a query's checkpoint was
    created. The facts of a checkpoint have the query's id, because a later query may use the same
    URL."""
    facts: Facts = {
        "keys": [],
        "maxParallelism": history.max_parallelism,
        "sequenced": False,
        "ignoresNulls": False,
    }
    if isinstance(history, ProviderHistory):
        return facts | {"keys": [*history.key_names], "queryId": history.query_id}
    assert isinstance(history, TableHistory | OperatorHistory), f"{history!r} has no metadata"
    facts["keys"] = [*column_names(history.metadata.key_schema_json)]
    if isinstance(history, TableHistory):
        facts["sequenced"] = history.metadata.sequence_by is not None
        facts["ignoresNulls"] = history.metadata.ignore_null_updates
    return facts


def with_facts(offset: Offset, history: StateHistory) -> Offset:
    """Add the facts of the state, and the watermarks of its writers, to an offset."""
    described = {**offset, "table": fixed_facts(history)}
    # A stream of an operator may begin after a version that is gone, or never existed.
    version = version_at(history, offset["version"])
    if version is not None:
        marks = version.watermarks.by_subtask
        if marks:
            described["watermarks"] = {str(writer): ms for writer, ms in marks.items()}
        described |= _version_facts(history, version)
    return described


def watermark_in(offset: Offset) -> int | None:
    """The least watermark of all writers; None if no writer has a watermark."""
    return min(offset.get("watermarks", {}).values(), default=None)


def check_fixed(url: str, history: StateHistory, read_before: Facts) -> None:
    """Compare the fixed facts of the state at `url` with the facts of the state that the stream has
    read. Raises StateReplacedError if the facts differ."""
    facts_now = fixed_facts(history)
    for name, value in read_before.items():
        # A query may be rescaled: then its checkpoint has another number of key groups.
        is_fixed = name != "maxParallelism" or "queryId" not in facts_now
        if is_fixed and facts_now.get(name) != value:
            raise StateReplacedError(url, name, value, facts_now.get(name))


def check_same_state(url: str, history: StateHistory, read: Offset) -> None:
    """Check that the state at `url` is the state that the stream has read up to offset `read`.
    Raises StateReplacedError, and EpochsTakenBackError if the query that writes the state went
    back."""
    check_fixed(url, history, read["table"])
    if isinstance(history, OperatorHistory) and "run" in read:
        _check_epochs(history, EpochDirectory(read["version"], read["run"]))
    version = version_at(history, read["version"])
    if version is None:
        return
    for name, value in _version_facts(history, version).items():
        if name in _COMPARED and read.get(name, value) != value:
            fact = _COMPARED[name].format(version.info.version)
            raise StateReplacedError(url, fact, read[name], value)


def _version_facts(history: StateHistory, version: StateVersion) -> Facts:
    """Facts that tell a version from another version of the same number."""
    number = version.info.version
    if isinstance(history, TableHistory):
        return {"committed_ms": version.info.timestamp_ms}
    if isinstance(history, ProviderHistory):
        return {"attempt": history.attempt_at(number)}
    assert isinstance(history, OperatorHistory), f"{history!r} is not of an operator"
    return {"run": history.checkpoint_at(number).run.number}


def _check_epochs(history: OperatorHistory, last: EpochDirectory) -> None:
    """Check that all epochs that the stream has read still count; see the module. `last`: the last
    of these epochs, with its run. Raises EpochsTakenBackError."""
    versions = history.versions()
    left = history.left_behind(last)
    if not left:
        return
    if left == (last,):
        if not versions or versions[-1] < last.epoch:
            return
        if last.epoch in versions:
            run = history.checkpoint_at(last.epoch).run.number
            if history.are_same(EpochDirectory(last.epoch, run), last):
                return
    raise EpochsTakenBackError(history.url, left[0].epoch, last.epoch, last.run_number)
