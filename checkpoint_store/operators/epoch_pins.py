"""Pins on epochs in long use by a reader, so retention leaves the epochs alone.

    pins/<epoch>-<unique>.json

A pin retains its epoch and all newer epochs. A pin is an object in the store, because retention may
run in any process. After pinning an epoch, a reader checks that the epoch is still there, because
retention may have begun before the pin was written. A pin without renewal for `PIN_SECONDS` is of a
killed reader: the pin is ignored, and the next reader that pins an epoch deletes the old pin.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.document import encode_document
from checkpoint_store.object_names import PINS
from checkpoint_store.objects.deletion import time_of_store
from checkpoint_store.objects.named_object import unique_of_uuid
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.repeated_call import repeated

PIN_SECONDS = 24 * 3600.0

_log = logging.getLogger(__name__)
_NAME = re.compile(rf"{PINS}/(?P<epoch>\d{{19}})-[0-9a-f]{{12}}\.json")


@dataclass(frozen=True, slots=True)
class EpochPins:
    """The pins in `store`. `now`: returns the seconds since 1970."""

    store: ObjectStore
    now: Callable[[], float] = field(default=time.time)

    def oldest(self) -> int | None:
        """The oldest pinned epoch, None if there is no pin. Costs one listing."""
        pins = self.store.list(PINS)
        over = self._over(pins)
        held = (_NAME.fullmatch(pin.name) for pin in pins if pin not in over)
        return min((int(match["epoch"]) for match in held if match), default=None)

    @contextmanager
    def pinned(self, epoch: int) -> Iterator[None]:
        """Pin an epoch for the duration of a `with` block."""
        names = [self._put(epoch)]
        purpose = f"to renew the pin of epoch {epoch}"
        try:
            with repeated(lambda: names.append(self._put(epoch)), PIN_SECONDS / 8, purpose):
                yield
        finally:
            try:
                over = [pin.name for pin in self._over(self.store.list(PINS))]
                self.store.delete([*names, *(name for name in over if _NAME.fullmatch(name))])
            except CheckpointStoreError:
                # The pin ends by itself. The data read under the pin is right all the same.
                _log.warning("the pin of epoch %s cannot be removed", epoch, exc_info=True)

    def _put(self, epoch: int) -> str:
        name = f"{PINS}/{epoch:019d}-{unique_of_uuid()}.json"
        self.store.put(name, encode_document("pin", {"epoch": epoch}))
        return name

    def _over(self, pins: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        """The pins that are too old. If a pin looks too old by this machine's clock, the store's
        clock decides: the machine's clock may be ahead."""

        def older_than(now: float) -> list[ObjectInfo]:
            return [pin for pin in pins if pin.modified_ms / 1000 + PIN_SECONDS < now]

        looking_so = older_than(self.now())
        return older_than(time_of_store(self.store, self.now())) if looking_so else []
