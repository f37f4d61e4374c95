"""The number of partitions of a query, from Spark's offset log.

    offsets/<batch>    see spark_log_entry; the "conf" of the JSON has the number

`cowstate rescale` changes the number between two batches, and edits the entry of the earlier batch.
So the entry of batch n has the number of partitions of the state after batch n, and of batch n + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files.document import Source
from checkpoint_store.object_names import OFFSETS
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.spark_log_entry import parse_log_entry

_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class QueryPartitions:
    """The numbers of partitions in the offset log. A number that was read is remembered, so make a
    new object when the query may have been rescaled. Methods raise CorruptObjectError for a damaged
    entry, and UnsupportedFormatError for an entry of a later Spark."""

    checkpoint: ObjectStore
    _read: dict[int, int | None] = field(default_factory=dict, repr=False, compare=False)

    def after(self, batch: int) -> int:
        """The number of partitions of the state after a batch. An entry without a number shows that
        a rescale has begun; in this case the entry of the next batch has the number. Raises
        ObjectMissingError if neither entry has a number."""
        for entry in (batch, batch + 1):
            noted = self.noted(entry)
            if noted is not None:
                return noted
        raise ObjectMissingError(self.checkpoint.url, f"{OFFSETS}/{max(batch, 0)}")

    def of_all(self, batch: int) -> int | None:
        """The number of partitions of a query that was never rescaled, so all entries have the same
        number. If no entry with a number has been read yet, the entry of `batch` is read. None if
        this entry is missing or has no number. Raises CorruptObjectError."""
        read = (number for number in [*self._read.values()] if number is not None)
        return next(read, None) or self.noted(batch)

    def noted(self, batch: int) -> int | None:
        """The number in the entry of a batch; None if the entry is missing or has no number."""
        if batch not in self._read:
            self._read[batch] = self._number_in(batch)
        return self._read[batch]

    def _number_in(self, batch: int) -> int | None:
        name = f"{OFFSETS}/{batch}"
        if batch < 0:
            return None
        try:
            entry = parse_log_entry(self.checkpoint.get(name), Source(self.checkpoint.url, name))
            number = entry["conf"].get(_PARTITIONS)
            return None if number is None else int(number)
        except ObjectMissingError:
            return None
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"not an entry of an offset log: {error!r}"
            raise CorruptObjectError(self.checkpoint.url, name, problem) from error
