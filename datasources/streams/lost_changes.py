"""The error of a stream that cannot read all changes, because versions are gone."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.errors import VersionMissingError, VersionNotRetainedError

_START_ANEW = (
    "start the stream anew, with a new checkpoint location and without startingVersion: it then "
    "begins with the newest state"
)


@dataclass(eq=False)
class ChangesLostError(VersionNotRetainedError):
    """Loss of a version of `url` that a stream needs. `what`: the objects to restore, None if
    retention may have deleted the version; `was_read`: True if the stream has read up to the
    version."""

    what: str | None
    was_read: bool

    @classmethod
    def of(cls, absent: VersionNotRetainedError, *, was_read: bool) -> ChangesLostError:
        """The error of a stream that needs an absent version."""
        what = absent.what if isinstance(absent, VersionMissingError) else None
        return cls(absent.url, absent.version, absent.oldest, absent.newest, what, was_read)

    def __str__(self) -> str:
        gone, can_go_on = self._gone()
        if self.was_read:
            why = "The stream has read up to this version, and needs it to compute later changes"
        else:
            why = "The stream has not read its changes, or needs it to compute the next changes"
        if not can_go_on:
            return f"{gone}. {why}. To go on, {_START_ANEW}"
        restore = "Set" if self.what is None else f"Restore {self.what} from a backup, or set"
        return (
            f"{gone}. {why}. {restore} option failOnDataLoss to false: the stream then goes on "
            "with all changes that can still be read, and names in the log the changes that it "
            f"passes over. Or {_START_ANEW}"
        )

    def _gone(self) -> tuple[str, bool]:
        """Return two values: what is gone, in words; and True if the stream can go on with later
        changes."""
        which = "the newest version" if self.version is None else f"version {self.version}"
        what = f"{which} of {self.url}"
        held = f"it holds versions {self.oldest} to {self.newest}"
        if self.oldest is None or self.newest is None:
            held = "it holds no version"
        if self.what is not None:
            return f"{what} is missing; {held}", True
        if self.newest is None or self.version is None:
            return f"{what} does not exist; {held}: the state was deleted, or began anew", False
        if self.version > self.newest:
            return (
                f"{what} does not exist; the state ends at version {self.newest}: it is another "
                "state, was restored from an older backup, or lost its last versions"
            ), False
        return f"{what} is not retained any more; {held}", True
