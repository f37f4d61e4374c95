"""The public names of each package, as a list: a change of a public name is a decision."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

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


def documented(module: ModuleType, name: str) -> bool:
    return bool(inspect.getdoc(getattr(module, name)))


@pytest.mark.parametrize("package", sorted(PUBLIC_NAMES))
def test_public_names_are_those_listed(package: str) -> None:
    assert sorted(importlib.import_module(package).__all__) == sorted(PUBLIC_NAMES[package])


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
