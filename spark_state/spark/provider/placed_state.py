"""The state of a checkpoint in an object store, for the commands of a driver.

The session's `storeOptions` and `storeRetrySeconds` apply here as for the provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from checkpoint_store.files.document import Source
from checkpoint_store.object_names import STATE, STATE_PLACE
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.provider.state_place import StatePlace, decode_state_place
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.session.setting_values import MOST, whole_number

_SETTINGS = "spark.sql.streaming.stateStore.cowstate"
OPTIONS_KEY = f"{_SETTINGS}.storeOptions"
RETRY_KEY = f"{_SETTINGS}.storeRetrySeconds"
# A user with a password, which may have slashes.
_USER = re.compile("://.*:.*@", re.DOTALL)


def place_of(files: CheckpointFiles) -> StatePlace | None:
    """The object store in a checkpoint's state/cowstate-store.json; None without this file. Raises
    CorruptObjectError."""
    if not files.exists(STATE_PLACE):
        return None
    text = files.read_text(STATE_PLACE)
    return decode_state_place(text.encode(), Source(files.url, STATE_PLACE))


def store_url(text: str) -> str:
    """The URL of a store that a user gave, in the form in which a checkpoint keeps the URL. Raises
    ConfigurationError for a URL with credentials, which a checkpoint must not have, and
    StoreAccessError."""
    if _USER.search(text) or "?" in text:
        raise ConfigurationError(
            "the URL of the store has credentials or a query, which would be in the checkpoint: "
            "leave them out, and set credentials in the environment"
        )
    return open_object_store(text).url


class PlacedState:
    """The files of a checkpoint's stores in a directory of an object store. Raises
    ConfigurationError for wrong settings, without the values of options."""

    def __init__(self, files: CheckpointFiles, place: StatePlace) -> None:
        settings = files.settings()
        text = settings.get(OPTIONS_KEY) or "{}"
        files.check_store_options(text)
        try:
            options = json.loads(text)
        except ValueError:  # text after the object, which the JVM leaves out
            raise ConfigurationError(f"{OPTIONS_KEY} is not a JSON object of options") from None
        seconds = settings.get(RETRY_KEY) or str(RETRY_SECONDS)
        retry_seconds = whole_number(RETRY_KEY, seconds, 1, MOST)
        opened = open_object_store(place.root, options)
        self._objects: ObjectStore = RetryingObjectStore(opened, retry_seconds)

    def lengths(self) -> dict[str, int]:
        """The lengths of all files of all stores, by path."""
        partitions = self._below(self._below([STATE]))
        listed = in_parallel(self._objects.list, [*partitions, *self._below(partitions)])
        return {info.name: info.length for infos in listed for info in infos}

    def _below(self, directories: list[str]) -> list[str]:
        listed = in_parallel(self._objects.list_directories, directories)
        return [directory for names in listed for directory in names]

    def delete_all_but(self, kept: Collection[str]) -> None:
        """Delete all files of the stores, except the files whose paths are in `kept`."""
        names = [name for name in self.lengths() if name not in kept]
        if names:
            self._objects.delete(names)
