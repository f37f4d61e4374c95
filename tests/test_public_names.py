"""The public names of each package, listed: a change to them is a decision, not an accident."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

from datasources import StateReplacedError

PUBLIC_NAMES = {
    "checkpoint_store": {
        "ChangesNotKnownError",
        "CheckpointStoreError",
        "ConflictingWriterError",
        "CorruptObjectError",
        "EpochNotRetainedError",
        "EpochNumbers",
        "LostFilesError",
        "LostVersionError",
        "NoOperatorStoreError",
        "NoProgressError",
        "NoSavepointError",
        "NotACheckpointError",
        "NotAStoreError",
        "ObjectExistsError",
        "NotATableError",
        "NotAnOperatorError",
        "OperatorProgress",
        "ObjectMissingError",
        "PartialEpochError",
        "ProviderStore",
        "StateChoiceError",
        "StateNotFoundError",
        "StateReader",
        "StoreAccessError",
        "StoreMismatchError",
        "StoreNotFoundError",
        "StoreUnavailableError",
        "SubtaskProgress",
        "TableMismatchError",
        "TableSchemaError",
        "TimestampOutOfRangeError",
        "UncertainCommitError",
        "UnknownColumnError",
        "UnreadableStateError",
        "UnsupportedFormatError",
        "VersionMissingError",
        "VersionNotFoundError",
        "VersionNotRetainedError",
        "WrittenTwiceError",
        "open_store",
        "read_progress",
    },
    "datasources": {
        "ChangesLostError",
        "CowStateDataSource",
        "DuplicateKeyError",
        "EpochsTakenBackError",
        "InputRowError",
        "NullKeyError",
        "NullSequenceError",
        "StateReplacedError",
    },
    "spark_state": {
        "ArrowStatefulProcessor",
        "BatchIdentityError",
        "ConfigurationError",
        "CorruptStreamError",
        "CowstateError",
        "FencedError",
        "KeyGroupError",
        "LiveView",
        "MemoryLimitError",
        "MetricsServer",
        "OperatorStateBackend",
        "OutputRowError",
        "Savepoint",
        "StateHostError",
        "StateMigrationError",
        "StateValueError",
        "UnsupportedOperationError",
        "configure",
        "disable",
        "enable",
        "jar_path",
        "live_view",
        "progress",
        "restore",
        "savepoint",
        "serve_metrics",
        "transform_with_state",
        "transform_with_state_in_arrow",
        "transform_with_state_in_pandas",
    },
}


MODULES_THAT_PROGRAMS_IMPORT = {
    "checkpoint_store.completed_checkpoint_store": {
        "CompletedCheckpointStore",
        "StateFileWriter",
        "StoreMetadata",
        "unique_of_uuid",
    },
    "checkpoint_store.object_store": {
        "FsspecObjectStore",
        "LocalObjectStore",
        "ObjectInfo",
        "ObjectStore",
        "absolute_url",
        "open_object_store",
    },
    "checkpoint_store.provider_checkpoint": {"committed_batches", "read_changes", "read_state"},
    "checkpoint_store.table_store": {"TableCommit", "TableFileWriter", "TableStore"},
}


def documented(module: ModuleType, name: str) -> bool:
    return bool(inspect.getdoc(getattr(module, name)))


@pytest.mark.parametrize("package", sorted(PUBLIC_NAMES))
def test_public_names_are_those_listed(package: str) -> None:
    assert sorted(importlib.import_module(package).__all__) == sorted(PUBLIC_NAMES[package])


@pytest.mark.parametrize("module", sorted(MODULES_THAT_PROGRAMS_IMPORT))
def test_modules_that_programs_import_keep_their_names(module: str) -> None:
    imported = importlib.import_module(module)
    assert set(imported.__all__) == MODULES_THAT_PROGRAMS_IMPORT[module]
    assert all(documented(imported, name) for name in imported.__all__)


@pytest.mark.parametrize("package", sorted(PUBLIC_NAMES))
def test_every_public_name_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert inspect.getdoc(module)
    assert [name for name in module.__all__ if not documented(module, name)] == []


@pytest.mark.parametrize("package", sorted(PUBLIC_NAMES))
def test_tab_completion_offers_names_that_are_not_imported_yet(package: str) -> None:
    script = f"import {package}; print(*dir({package}))"
    listed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert sorted(PUBLIC_NAMES[package] - set(listed)) == []


def test_former_names_of_the_values_of_an_error_keep_working() -> None:
    error = StateReplacedError("/t", "maxParallelism", 128, 64)
    assert (error.former, error.present) == (128, 64)
    assert (error.known, error.found) == (128, 64)
