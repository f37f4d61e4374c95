"""What a batch of a stream reads, and what the plan of it costs."""

from __future__ import annotations

from typing import Any

from checkpoint_store.checkpoint_layout import EpochDirectory
from checkpoint_store.operator_history import OperatorHistory
from checkpoint_store.published_objects import PublishedObjects
from datasources.channel_positions import Positions, position_of
from datasources.stream_batch import StreamBatch
from datasources.stream_offset import offset_at
from datasources.table_options import parse_stream_options
from tests.support.fake_object_store import DictObjectStore
from tests.support.keyed_operator import KEYED, KeyedOperator


def batch_of(objects: DictObjectStore, start: Any, end: Any, **options: str) -> StreamBatch:
    parsed = parse_stream_options({"path": "/store", **options})
    return StreamBatch(parsed, OperatorHistory(objects, KEYED, None), start, end)


def positions_at(objects: DictObjectStore, epoch: int, run: int = 1) -> Positions:
    """Those of the barriers of an epoch."""
    names = PublishedObjects(objects).barriers(EpochDirectory(epoch, run))
    return {name.subtask: position_of(name) for name in names}


class TestRequests:
    """Eight channels, of which some are ahead of epoch 1."""

    def listings(self, channels_ahead: int) -> list[str]:
        objects = DictObjectStore()
        operator = KeyedOperator(objects, parallelism=8)
        for epoch in range(2):
            operator.run_epoch(epoch, {key: epoch for key in range(8)})
        base = operator.checkpoints.latest_before(2)
        for subtask in range(channels_ahead):
            operator.run_subtask(2, subtask, {subtask: 2}, base)
        end = offset_at(1, "version", positions_at(objects, 2))
        batch = batch_of(objects, offset_at(0), end)
        objects.listings.clear()
        parts = batch.parts()
        assert sum(bool(part.ahead) for part in parts) == channels_ahead
        return objects.listings

    def test_more_channels_ahead_need_no_more_listings(self) -> None:
        of_one = self.listings(1)
        assert self.listings(7) == of_one
        assert of_one.count("manifests") == 1

    def test_channels_that_were_ahead_need_no_more_listings(self) -> None:
        """Each has a stretch of its own, from the epoch that it had reached."""
        objects = DictObjectStore()
        operator = KeyedOperator(objects, parallelism=8)
        for epoch in range(4):
            operator.run_epoch(epoch, {key: epoch for key in range(8)})
        start = offset_at(0, "version", positions_at(objects, 1))
        batch = batch_of(objects, start, offset_at(3))
        assert len(batch.stretches({})) == 8
        objects.listings.clear()
        batch.parts()
        assert objects.listings.count("manifests") == 1
