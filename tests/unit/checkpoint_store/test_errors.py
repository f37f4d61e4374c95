"""Every error of the store says the values and the way out."""

from __future__ import annotations

import pickle

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.errors import (
    CheckpointStoreError,
    ConflictingWriterError,
    CorruptObjectError,
    EpochNotRetainedError,
    LostFilesError,
    LostVersionError,
    NotAStoreError,
    NotATableError,
    ObjectExistsError,
    ObjectMissingError,
    PartialEpochError,
    StateNotFoundError,
    StoreAccessError,
    StoreMismatchError,
    StoreUnavailableError,
    TableMismatchError,
    TableSchemaError,
    TimestampOutOfRangeError,
    UncertainCommitError,
    UnknownColumnError,
    UnsupportedFormatError,
    VersionMissingError,
    VersionNotRetainedError,
    WrittenTwiceError,
)
from checkpoint_store.files.database_readers import DatabaseReaderError
from checkpoint_store.files.working_directory import WorkingDirectoryError
from checkpoint_store.interface_words import COMMAND, OPTIONS, PYTHON, InterfaceWords, in_words_of
from checkpoint_store.operators.operator_errors import (
    NoOperatorStoreError,
    NotAnOperatorError,
)
from checkpoint_store.provider.provider_errors import (
    ChangesNotKnownError,
    NotACheckpointError,
    StateChoiceError,
    StoreNotFoundError,
    UnreadableStateError,
)
from checkpoint_store.runs.run_errors import (
    ContradictingRunsError,
    EpochsLostError,
    NoEpochToAttachError,
    OvertakenRunError,
    RunChoiceError,
    RunOverError,
    StoreOfOtherCheckpointError,
)
from datasources.streams.lost_changes import ChangesLostError

URL = "s3://bucket/store"
# Each error with the texts that its message must contain beside the URL: the object, the values,
# the way out.
ERRORS: list[tuple[CheckpointStoreError, str]] = [
    (ObjectMissingError(URL, "a.arrow", 7), "a.arrow | epoch 7 | restart the query"),
    (ObjectMissingError(URL, "store.json"), "store.json | backup | start the query"),
    (
        DatabaseReaderError(URL, "database.json", "rocksdb", "No module named 'rocksdict'"),
        "database.json | 'rocksdict' | pip install 'cowstate[rocksdb]' | incremental=false",
    ),
    (
        WorkingDirectoryError(URL, "database.json", "/tmp", "No space left on device"),
        "database.json | /tmp | No space left on device | TMPDIR",
    ),
    (CorruptObjectError(URL, "store.json", "cut"), "store.json | (cut) | delete it | No state"),
    (
        CorruptObjectError(URL, "table.json", "cut"),
        "table.json | (cut) | key and options | has no version yet",
    ),
    (
        CorruptObjectError(URL, "versions/7.json", "cut", 7),
        "versions/7.json | other versions | by their number | was killed | delete it",
    ),
    (CorruptObjectError(URL, "data/q/7.arrow", "cut"), "data/q/7.arrow | does not need it"),
    (CorruptObjectError(URL, "data/compacted/7.arrow", "cut"), "backup | compactions/"),
    (CorruptObjectError(URL, "compactions/7.json", "cut"), "not needed | delete it"),
    (
        CorruptObjectError(
            URL, str(BarrierName(EpochDirectory(7, 1), 0, 2, 3, "0" * 12)), "cut", 7
        ),
        "epoch 7 | restart the query | was killed | runs the epoch again",
    ),
    (CorruptObjectError(URL, "state/0/0/7.arrow", "cut"), "restart the query | delete batch n"),
    (CorruptObjectError(URL, "a.arrow", "sha256 is wrong", 7), "a.arrow | epoch 7 | sha256"),
    (ObjectExistsError(URL, "a.arrow"), "a.arrow | not changed"),
    (
        StoreUnavailableError(URL, "reading x", 119.7, "OSError: down"),
        "reading x | for 120 s | down | storeRetrySeconds",
    ),
    (StoreAccessError(URL, "permission denied."), "permission denied. Make"),
    (PartialEpochError(URL, 9, (0, 2), (1, 3)), "epoch 9 | 0, 2 | 1, 3 | take | delete commits/9"),
    (EpochNotRetainedError(URL, 3, 50), "epoch 3 | 50 | 51 | minEpochsToRetain"),
    (
        OvertakenRunError(URL, Run(2, "f47a"), 6, 1, 9),
        "run 2 (f47a) | epoch 6 | run 1 | epoch 9 | another driver | cowstate attach",
    ),
    (
        ContradictingRunsError(URL, 6, 1, 2),
        "runs 1 and 2 | epoch 6 | cowstate attach | --run <run>",
    ),
    (EpochsLostError(URL, 9, 3), "epoch 9 | epoch 3 | Restore | older copy"),
    (EpochsLostError(URL, 9, None), "epoch 9 | no epoch"),
    (
        StoreOfOtherCheckpointError(URL, "file:/a", "file:/b"),
        "file:/a | file:/b | cowstate attach file:/b | restoreFrom",
    ),
    (StoreOfOtherCheckpointError(URL, None, "file:/b"), "another location"),
    (
        RunChoiceError(URL, "nobody can tell", ("run 1 (f47a) wrote epoch 4", "run 2 (0c51)")),
        "nobody can tell | run 1 (f47a) wrote epoch 4; run 2 | --run | runId",
    ),
    (RunChoiceError(URL, "there is no run 7", ()), "no run has begun"),
    (NoEpochToAttachError(URL, 5, "epochs 7 to 9"), "batch 5 | epochs 7 to 9 | Restore"),
    (RunOverError(URL, Run(1, "f47a"), 2, 9), "run 1 (f47a) | run 2 | epoch 9 | stop"),
    (StoreMismatchError(URL, "operator", "a", "b"), "operator a | not b | new store"),
    (UnsupportedFormatError(URL, "store.json", 2, 1), "store.json | version 2 | upgrade"),
    (NotACheckpointError(URL), "no committed batch | checkpointLocation"),
    (
        StoreNotFoundError(URL, 3, "lefft", ((0, ("left", "right")), (1, ("default",)))),
        "'lefft' of operator 3 | operator 0: left, right; operator 1: default",
    ),
    (StoreNotFoundError(URL, 0, "default", ()), "no state | <spark.cowstate.store>"),
    (
        StateChoiceError(URL, "store 'x' of operator 2"),
        "no store 'x' of operator 2 | as state | operator_id",
    ),
    (
        ChangesNotKnownError(URL, "state/0/1", 7, 9),
        "state/0/1 | version 7, which batch 6 | adopt | from batch 8 on",
    ),
    (ChangesNotKnownError(URL, "state/0/1", 7), "known of no batch yet"),
    (
        UnreadableStateError(URL, "1.delta", "Spark's own provider wrote it"),
        '1.delta | Spark\'s own | format("statestore")',
    ),
    (ConflictingWriterError(URL, "query a", "query b"), "query a | query b | takeOver"),
    (
        LostFilesError(URL, "data/q/7/a", "batch job q", 3),
        "data/q/7/a | 2 other files | batch job q | orphanGraceSeconds | again",
    ),
    (
        UncertainCommitError(URL, 7, 30, "batch job q"),
        "version 7 | version 30 | batch job q | write what is missing",
    ),
    (
        LostVersionError(URL, "versions/7.json", "q", 9, 6),
        "versions/7.json | query q | batch 9 | up to 6 | Restore it | from batch 7",
    ),
    (LostVersionError(URL, "versions/0.json", "q", 9, None), "no batch of it | from batch 0"),
    (NotAStoreError(URL, ("q/totals",)), "table.json | store.json | q/totals"),
    (NotAStoreError(URL), "Name the directory | checkpointLocation | commits/"),
    (StateNotFoundError(URL, "a", ("b", "c")), "'a' | b, c | as state"),
    (StateNotFoundError(URL, None, ("b", "c")), "no state is named | b, c | as state"),
    (
        TableMismatchError(URL, "keys", "a", "b"),
        f"table | keys a | not b | leave | no rows | delete {URL}/table.json",
    ),
    (NotAnOperatorError(URL), "nor a savepoint | <store>/<query id>/<operator> | checkpoint"),
    (NoOperatorStoreError(URL, ("q/totals",)), "store.json | q/totals | <query id> for"),
    (NotATableError(URL, ("a.csv",)), "a.csv | directory of its own | new or empty"),
    (TableSchemaError(URL, "column 'x' is new", "drop it"), "column 'x' is new | drop it"),
    (
        TimestampOutOfRangeError(URL, 0, 1_700_000_000_000, 1_800_000_000_000),
        "1970-01-01 | 2023-11-14 | 2027-01-15 | minVersionsToRetain",
    ),
    (TimestampOutOfRangeError(URL, 2**63 - 1, 0, 8_000), f"{2**63 - 1} ms | 00:00:08"),
    (TimestampOutOfRangeError(URL, -(2**63), 0, 8_000), f"{-(2**63)} ms | 00:00:08"),
    (UnknownColumnError(URL, "amout", ("id", "amount")), "'amout' | 'amount' | id"),
    (
        VersionNotRetainedError(URL, 7, 12, 30),
        "version 7 | 12 to 30 | deleted by retention | minVersionsToRetain",
    ),
    (
        VersionMissingError(URL, 3, 0, 9, (2, 4), "versions/3.json"),
        "version 3 | 2 and 4 are there | Restore versions/3.json | 0 to 9 | after version 4",
    ),
    (
        ChangesLostError(URL, 3, 0, 9, "versions/3.json", was_read=False),
        "version 3 | missing | 0 to 9 | Restore versions/3.json | failOnDataLoss",
    ),
    (
        ChangesLostError(URL, 7, 12, 30, None, was_read=True),
        "version 7 | not retained | 12 to 30 | failOnDataLoss | new checkpoint location",
    ),
    (
        ChangesLostError(URL, 31, 12, 30, None, was_read=True),
        "version 31 | ends at version 30 | is another state | new checkpoint location",
    ),
    (
        ChangesLostError(URL, 7, None, None, None, was_read=True),
        "version 7 | no version: | deleted | new checkpoint location",
    ),
    (VersionNotRetainedError(URL, 31, 12, 30), "version 31 | not written yet | 12 to 30"),
    (VersionNotRetainedError(URL, 20, 12, 30), "version 20 | is not there | 12 to 30"),
    (WrittenTwiceError(URL, "q", 3), "batch 3 | query q | union"),
    (VersionNotRetainedError(URL, None, None, None), "no version yet | run first"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=lambda value: type(value).__name__)
def test_a_message_has_values_and_a_way_out(error: CheckpointStoreError, words: str) -> None:
    assert [word for word in (URL, *words.split(" | ")) if word not in str(error)] == []


@pytest.mark.parametrize("numbers", [(7, None, None), (None, None, None), (7, 0, 6)])
def test_a_stream_is_not_sent_to_an_option_with_which_it_would_stand_still(
    numbers: tuple[int | None, int | None, int | None],
) -> None:
    message = str(ChangesLostError(URL, *numbers, None, was_read=True))
    for words in ("None", "retained", "failOnDataLoss"):
        assert words not in message


def below(error: type[CheckpointStoreError]) -> set[type[CheckpointStoreError]]:
    return {descendant for sub in error.__subclasses__() for descendant in {sub, *below(sub)}}


def test_every_error_of_the_module_is_tried_here() -> None:
    assert {type(error) for error, _ in ERRORS} == below(CheckpointStoreError)


def test_a_long_list_of_subtasks_is_cut() -> None:
    error = PartialEpochError(URL, 9, tuple(range(200)), (200,))
    assert "8, 9 and 190 more" in str(error)


def test_of_tables_nothing_is_said_of_epochs() -> None:
    for name in ("versions/7.json", "data/q/7.arrow", "data/compacted/7.arrow"):
        for error in (ObjectMissingError(URL, name, 7), CorruptObjectError(URL, name, "cut", 7)):
            assert "epoch" not in str(error)


# Names for the choices of one interface, which other interfaces do not have. Commands choose no
# states, so an error about a state always uses Python's words.
OF_PYTHON = ("ProviderStore", "as state", "open_store", "read_state", "epoch=")
OF_OPTIONS = ("stateVarName", "operatorId", "storeName", "joinSide", "batchId", "versionAsOf")
OF_COMMANDS = (" --epoch",)


@pytest.mark.parametrize(
    ("called", "foreign"),
    [(PYTHON, OF_OPTIONS + OF_COMMANDS), (OPTIONS, OF_PYTHON + OF_COMMANDS), (COMMAND, OF_OPTIONS)],
    ids=["python", "options", "command"],
)
@pytest.mark.parametrize("error", [error for error, _ in ERRORS], ids=lambda e: type(e).__name__)
def test_advice_is_in_the_words_of_the_interface_that_was_called(
    error: CheckpointStoreError, called: InterfaceWords, foreign: tuple[str, ...]
) -> None:
    with in_words_of(called):
        message = str(type(error)(*error.args))
    assert [name for name in foreign if name in message] == []


def test_an_error_keeps_its_words_in_another_process() -> None:
    with in_words_of(OPTIONS):
        error = StateNotFoundError(URL, None, ("b", "c"))
    assert str(error).endswith("Name one with stateVarName")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(StateNotFoundError(URL, None, ("b",))).endswith("Pass the name of one as state")
    with in_words_of(COMMAND):
        assert "Choose one of these with --epoch" in str(VersionNotRetainedError(URL, 31, 12, 30))
