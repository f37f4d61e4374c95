"""An object that describes its store: whoever comes first creates it, and all write the same.

On a local disk it can be seen half-written. Its content depends on nothing but the store, so one
that stays a beginning of the expected bytes was left by a killed writer and may be replaced.
"""

from __future__ import annotations

import time

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.object_store import ObjectStore

_TRIES = 5
_WAIT_SECONDS = 0.05


def read_or_create(store: ObjectStore, name: str, expected: bytes) -> bytes:
    """The bytes of an object; `expected` if it was not there before."""
    data = b""
    for tried in range(_TRIES):
        try:
            data = store.get(name)
        except ObjectMissingError:
            put_if_absent(store, name, expected)
            continue
        if data == expected or not expected.startswith(data):
            break
        if tried == _TRIES - 3:
            store.delete([name])
        else:
            time.sleep(_WAIT_SECONDS)
    return data


def put_if_absent(store: ObjectStore, name: str, data: bytes) -> bool:
    """Create an object; False if the store knows that its name is taken."""
    try:
        store.put(name, data)
    except ObjectExistsError:
        return False
    return True
