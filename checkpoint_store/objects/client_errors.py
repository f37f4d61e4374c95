"""Translation of the errors of fsspec's clients to the errors of an ObjectStore, without
secrets."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from checkpoint_store.errors import CheckpointStoreError, StoreAccessError
from checkpoint_store.objects.secret_options import without_secrets

UNUSABLE = {
    errno.EACCES,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSYS,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
_WITHOUT_TEXT = ("Forbidden", "")
# botocore's errors about credentials: no OSErrors, and botocore need not be installed.
_CREDENTIAL_ERRORS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"}


@contextmanager
def telling_client_errors(
    url: str, storage_options: Mapping[str, Any], list_again: Callable[[], None]
) -> Iterator[None]:
    """Translate an error of the client to the error of an ObjectStore. Secrets in its text
    are hidden; then the client's error is not kept as the cause, because its text has the secret.
    `list_again` lists the store to find the reason of a refusal: the answer to a HEAD request has
    no text, but the answer to a listing has text."""
    try:
        yield
    except CheckpointStoreError:
        raise
    except Exception as error:
        if isinstance(error, PermissionError) and str(error) in _WITHOUT_TEXT:
            error = _reason_of(error, list_again)
        told = _told(url, storage_options, error)
        if without_secrets(str(error), storage_options) != str(error):
            raise told from None
        if told is error:
            raise
        raise told from error


def _reason_of(refusal: PermissionError, list_again: Callable[[], None]) -> PermissionError:
    try:
        list_again()
    except PermissionError as error:
        return error
    except OSError:
        pass
    return refusal


def _told(url: str, storage_options: Mapping[str, Any], error: Exception) -> Exception:
    text = without_secrets(str(error), storage_options)
    problem = f"{type(error).__name__}: {text}"
    is_refused = isinstance(error, FileNotFoundError | PermissionError)
    if is_refused or type(error).__name__ in _CREDENTIAL_ERRORS:
        return StoreAccessError(url, problem)
    if isinstance(error, OSError) and error.errno in UNUSABLE:
        return StoreAccessError(url, text)
    if isinstance(error, TypeError) and "unexpected keyword argument" in text and storage_options:
        return StoreAccessError(url, f"a storage option is not known to its client: {text}")
    is_own = not isinstance(error, OSError) and type(error).__module__ == "builtins"
    if (is_own or isinstance(error, OSError)) and text == str(error):
        return error
    # Client libraries have their own error classes for network failures.
    return StoreAccessError(url, problem) if is_own else OSError(errno.EIO, problem)


def client_error_code(error: BaseException) -> str | None:
    """Return the error code in the S3 server's answer, None if `error` does not stem from such an
    answer."""
    response = getattr(error.__cause__, "response", None)
    return None if response is None else response.get("Error", {}).get("Code")
