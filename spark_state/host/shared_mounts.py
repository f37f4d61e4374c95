"""Refuses directories where a listing may miss new objects from another machine.

Whenever a directory of a network file system is opened, Linux asks the server for changes, unless
the directory is mounted with the option `nocto`. With `nocto`, a listing may be as old as the entry
in Linux's cache of attributes, up to a minute.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.store_url import absolute_url

_ALWAYS_ASKS = {"noac", "actimeo=0", "acdirmax=0"}


def check_mount(url: str) -> None:
    """Raise StoreAccessError if a URL names a directory that is mounted with `nocto` and with a
    cache of attributes. Accept URLs of object stores, and all URLs on systems that list no
    mounts."""
    path = absolute_url(url).removeprefix("file://").removeprefix("local://")
    if "://" in path:
        return
    directory = Path(path).resolve()
    directory_and_parents = {str(each) for each in (directory, *directory.parents)}
    mounts = [
        mount
        for mount in psutil.disk_partitions(all=True)
        if mount.mountpoint in directory_and_parents
    ]
    # The last mount of the deepest directory hides all earlier mounts.
    mount = max(reversed(mounts), key=lambda each: len(each.mountpoint), default=None)
    options = set() if mount is None else set(mount.opts.split(","))
    if mount is not None and "nocto" in options and not options & _ALWAYS_ASKS:
        raise StoreAccessError(
            url,
            f"{mount.mountpoint} is mounted with nocto ({mount.fstype}), so a listing on one "
            "machine may lack objects that another machine has put. Mount it without nocto, or "
            "with actimeo=0",
        )
