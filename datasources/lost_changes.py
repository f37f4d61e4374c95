"""The error of a stream that cannot have all changes, because versions are gone."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.errors import VersionMissingError, VersionNotRetainedError

_ANEW = (
    "the stream anew, with a new checkpoint location and without startingVersion: it then begins "
    "with the newest state"
)


@dataclass(eq=False)
class ChangesLostError(VersionNotRetainedError):
    """A stream needs a version of `url` that is gone. `what`: the objects to restore, None if
    retention may have deleted them; `was_read`: the stream has read up to the version."""

    what: str | None
    was_read: bool

    @classmethod
    def of(cls, absent: VersionNotRetainedError, *, was_read: bool) -> ChangesLostError:
        """What the absence of a version means for a stream."""
        what = absent.what if isinstance(absent, VersionMissingError) else None
        return cls(absent.url, absent.version, absent.oldest, absent.newest, what, was_read)

    def __str__(self) -> str:
        gone, can_go_on = self._gone()
        if self.was_read:
            why = "The stream has read up to it, and the changes after it are told from it"
        else:
            why = "The stream has not read its changes, or needs it for those that come next"
        if not can_go_on:
            return f"{gone}. {why}. Start {_ANEW}"
        restore = "Set" if self.what is None else f"Restore {self.what} from a backup, or set"
        return (
            f"{gone}. {why}. {restore} option failOnDataLoss to false: the stream then goes on "
            "with all changes that can still be read, and names in the log those that it passes "
            f"over. Or start {_ANEW}"
        )

    def _gone(self) -> tuple[str, bool]:
        """What is gone, and whether changes come that the stream could go on with."""
        which = "the newest version" if self.version is None else f"version {self.version}"
        what = f"{which} of {self.url}"
        there = f"it holds versions {self.oldest} to {self.newest}"
        if self.oldest is None or self.newest is None:
            there = "it holds no version"
        if self.what is not None:
            return f"{what} is missing; {there}", True
        if self.newest is None or self.version is None:
            return f"{what} is not there; {there}: the state was deleted, or has begun anew", False
        if self.version > self.newest:
            return (
                f"{what} is not there; the state there ends at version {self.newest}: it is "
                "another one, was restored from an older backup, or lost its last versions"
            ), False
        return f"{what} is not retained any more; {there}", True
