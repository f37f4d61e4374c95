"""The number of partitions of a store, for each batch.

Spark notes the number when a query begins. `cowstate rescale` changes the number between two
batches. Directories of former partitions stay as long as older versions can be read, so there may
be more directories than partitions. Spark's note may be wrong after a killed rescale. The offset
log has the number of each batch.

The files of a rescale stay as long as there is a batch from before the rescale. So without such
files all batches have the same number, and one entry of the offset log is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.provider.provider_state import PartitionReader
from checkpoint_store.provider.query_partitions import QueryPartitions
from checkpoint_store.provider.spark_checkpoint import StorePartitions


@dataclass(frozen=True, slots=True)
class DealtPartitions:
    """The number of partitions of a store at each batch, according to the last listing of the
    store. `stored`: the number of partitions that Spark noted, and the number of partition
    directories. `query`: the numbers in the offset log. `first`: reader of partition 0, which has
    files of each rescale; None before the first listing."""

    stored: StorePartitions
    query: QueryPartitions
    first: PartitionReader | None

    @property
    def was_rescaled(self) -> bool:
        """True if there are files of a rescale."""
        return self.first is not None and self.first.files.has_rescaled

    @property
    def most(self) -> int:
        """Upper bound of the number of partitions of any batch."""
        return max(self.stored.noted, self.stored.directories)

    def after(self, batch: int) -> int:
        """The number of partitions of the state after a batch. Raises ObjectMissingError,
        CorruptObjectError."""
        stored = self.stored
        if not self.was_rescaled and stored.directories <= stored.noted:
            # With one directory the operator may be one that takes all rows at once.
            asked = None if stored.directories <= 1 else self.query.of_all(batch)
            return asked or stored.noted
        try:
            return self.query.after(batch)
        except ObjectMissingError as error:
            if self.was_rescaled:
                raise
            problem = f"it says {self.stored.noted} partitions, and there are more partitions"
            raise CorruptObjectError(error.url, self.stored.noted_in, problem) from error

    def during(self, batch: int) -> int:
        """The number of partitions during a batch. Raises the errors of `after`."""
        former = None if self.first is None else self.first.partitions_of_batch(batch + 1)
        return former or self.after(batch)
