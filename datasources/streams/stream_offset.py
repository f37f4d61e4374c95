"""The offsets of a stream; table_stream describes the offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.states.state_history import StateHistory
from datasources.options.table_options import StreamOptions
from datasources.options.version_choice import first_version_since, version_before
from datasources.streams.channel_positions import Positions, decode_positions, encode_positions
from datasources.streams.lost_changes import ChangesLostError
from spark_state.errors import ConfigurationError

Offset = dict[str, Any]


def offset_at(version: int, after: str = "version", ahead: Positions | None = None) -> Offset:
    """The offset at version `version`. `after`: see table_stream. The offset takes only the
    positions of `ahead` whose epochs are after the version."""
    offset: Offset = {"version": version, "after": after}
    further = {
        subtask: position for subtask, position in (ahead or {}).items() if position.epoch > version
    }
    return {**offset, "channels": encode_positions(further)} if further else offset


def positions_in(offset: Offset) -> Positions:
    """The channels that are ahead at an offset."""
    return decode_positions(offset.get("channels", {}))


def first_offset(options: StreamOptions, history: StateHistory, versions: Sequence[int]) -> Offset:
    """The offset before the first changes that `options` ask for. `versions`: the existing
    versions. Raises ChangesLostError if the first changes are gone, unless failOnDataLoss is false.
    Raises ConfigurationError if startingVersion is greater than the newest version plus 1."""
    first = options.starting_version
    if first == "earliest":
        return offset_before(None)
    if first == "latest":
        return offset_at(versions[-1])
    newest = versions[-1]
    if first is not None and first > newest + 1:
        # The stream would wait, maybe for ever, and not read the versions that come meanwhile.
        raise ConfigurationError(
            f"option startingVersion is {first}, but the newest version of {options.url} is "
            f"{newest}: set it to {newest + 1} or latest, for the changes that come from now on, "
            "or to an earlier version"
        )
    try:
        if options.starting_timestamp is not None:
            first = first_version_since(history, options.starting_timestamp)
        assert isinstance(first, int), first
        if first > versions[-1] or not options.fail_on_data_loss:
            return offset_before(first)
        before = version_before(history, first, versions)
    except VersionNotRetainedError as absent:
        if options.fail_on_data_loss:
            raise ChangesLostError.of(absent, was_read=False) from absent
        # The missing version may have been committed at startingTimestamp or later; all later
        # versions certainly were.
        return offset_before(absent.version)
    return offset_before(None) if before is None else offset_at(before)


def offset_before(version: int | None) -> Offset:
    """The offset from which `version` and all later versions are read. `version` need not exist.
    None: from the oldest version, whose rows come as inserts."""
    return offset_at(version - 1) if version else offset_at(-1, "nothing")
