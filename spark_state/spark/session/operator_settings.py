"""The settings of operators below `spark.cowstate.`, in one table.

To add a setting:

- add an entry to SETTINGS;
- add the field that the entry names, with the type and the default of the value, to
  CheckpointSettings, BackendSettings, DatabaseSettings or HostSettings, whose objects travel whole
  with the plan to the hosts; or to OperatorConfiguration if only the driver uses the value;
- run `python -m scripts.settings_page`.

Parsing, the errors for wrong values and unknown keys, filling the fields, and the table of
docs/reference/configuration.md come from SETTINGS.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from spark_state.errors import ConfigurationError
from spark_state.rocksdb.database_settings import COMPRESSIONS
from spark_state.spark.session.setting_values import (
    EPOCH_OF_STORE,
    LEAST_MEMORY_MB,
    LOCAL_DIRECTORY,
    MAX_PARALLELISM_LIMIT,
    OPEN_FILES,
    PREFIX,
    STORE_URL,
    TRUTH,
    SettingValues,
    choice,
    integer,
    or_none,
)
from spark_state.spark.session.store_options import STORE_OPTIONS_PREFIX

_ONE_LETTER_OF_PREFIX = 0.92


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    `key`: without the prefix; `field`: path of the field in OperatorConfiguration that carries the
    value and has the default, empty for a setting that is read at every call and not carried;
    `meaning`: in Markdown; `unit`: the unit of the value; `default_shown`: describes the default in
    Markdown if the field does not tell the default.
    """

    key: str
    field: str
    values: SettingValues
    meaning: str
    unit: str = ""
    default_shown: str = ""


SETTINGS = (
    Setting(
        "store",
        "store_root",
        STORE_URL,
        "root of the stores; the state of a query lives under its query id and operator name",
        default_shown="`./cowstate-store` on a local master; none on a cluster and with Spark "
        "Connect",
    ),
    Setting(
        "parallelism",
        "parallelism",
        integer(1, MAX_PARALLELISM_LIMIT),
        "number of subtasks of an operator, at most `maxParallelism`; may differ at every restart",
        default_shown="the session's default parallelism",
    ),
    Setting(
        "maxParallelism",
        "max_parallelism",
        integer(1, MAX_PARALLELISM_LIMIT),
        "number of key groups of a store; fixed when the store is created",
    ),
    Setting(
        "backend",
        "backend.kind",
        choice("heap", "rocksdb"),
        "where a state host keeps state: as Python objects, or [in "
        "RocksDB](../how-to/keep-large-state.md) on the local disk (extra `rocksdb`); may differ "
        "at every restart",
    ),
    Setting(
        "maxMemoryMB",
        "hosts.max_memory_mb",
        or_none(integer(LEAST_MEMORY_MB)),
        "memory that a host may use for state, input and output of all its subtasks together, see "
        "[a limit for the memory of a "
        "host](../how-to/keep-large-state.md#a-limit-for-the-memory-of-a-host). With RocksDB at "
        "least 32 more than `rocksdb.maxMemoryMB`; not less than an `outputMemoryMB` that is set",
        unit="MiB",
    ),
    Setting(
        "rocksdb.maxMemoryMB",
        "backend.memory_mb",
        integer(16),
        "memory that all databases of a host use together",
        "MiB",
    ),
    Setting(
        "rocksdb.incremental",
        "backend.incremental",
        TRUTH,
        "whether a snapshot uploads only the files of RocksDB that are new. If not, it has the key "
        "groups that have changed enough, as rows, which are read without RocksDB",
    ),
    Setting(
        "rocksdb.compression",
        "backend.database.compression",
        choice(*COMPRESSIONS),
        "how tables of RocksDB are compressed, on the local disk and in the store",
    ),
    Setting(
        "rocksdb.writeBufferMB",
        "backend.database.write_buffer_mb",
        integer(1, 2048),
        "rows of a column family that are in memory before they become a table; a state has one "
        "column family, or two with timers or time to live. `maxMemoryMB` may end it earlier",
        "MiB",
    ),
    Setting(
        "rocksdb.tableFileMB",
        "backend.database.table_file_mb",
        integer(1, 2048),
        "size of the tables that compaction makes. A table is in memory while it is uploaded or "
        "downloaded, four at a time",
        "MiB",
    ),
    Setting(
        "rocksdb.blockSizeKB",
        "backend.database.block_size_kb",
        integer(1, 4096),
        "rows that are read and compressed together. Larger blocks compress better, and cost more "
        "to read a single key",
        "KiB",
    ),
    Setting(
        "rocksdb.bloomBitsPerKey",
        "backend.database.bloom_bits_per_key",
        integer(0, 64),
        "bits for each key in the filter that spares reads of tables without the key; 0: no "
        "filter. 10 bits let 1 % through",
    ),
    Setting(
        "rocksdb.maxOpenFiles",
        "backend.database.max_open_files",
        OPEN_FILES,
        "how many tables a database keeps open; -1: all. Set it where the limit of open files of a "
        "process is low",
    ),
    Setting(
        "rocksdb.backgroundJobs",
        "backend.database.background_jobs",
        integer(1, 256),
        "how many threads of a host write and merge tables",
    ),
    Setting(
        "rocksdb.localDirectory",
        "backend.local_directory",
        or_none(LOCAL_DIRECTORY),
        "below which hosts keep the files of databases, and input and output that do not fit into "
        "memory",
        default_shown="Spark's local directory",
    ),
    Setting(
        "localRecovery",
        "backend.local_recovery",
        TRUTH,
        "whether the files of RocksDB that the store has are kept on the local disk, too, so that "
        "a host that follows one that was killed downloads only the others",
    ),
    Setting(
        "hostsPerExecutor",
        "hosts.per_executor",
        integer(1, 1024),
        "number of state host processes of an executor",
        default_shown="cores of an executor",
    ),
    Setting(
        "hostIdleSeconds",
        "hosts.idle_seconds",
        integer(1),
        "a host ends after this time without a request, and gives up the state of a query that "
        "asks for none, or earlier if [memory is "
        "short](../how-to/keep-large-state.md#state-does-not-fit). A host that runs keeps the "
        "value that it was started with",
        "s",
    ),
    Setting(
        "outputMemoryMB",
        "output_memory_mb",
        integer(1),
        "how much output of a subtask is held in memory until its epoch is durable; more goes to a "
        "file in `rocksdb.localDirectory`",
        "MiB",
    ),
    Setting(
        "minEpochsToRetain",
        "checkpoints.min_epochs_to_retain",
        integer(2),
        "at least this many newest epochs are [retained](../checkpoint_format.md#deletion) and can "
        "be restored. Tables have versions, see [`minVersionsToRetain`](data-source.md#writes)",
    ),
    Setting(
        "minEpochsForSnapshot",
        "checkpoints.min_epochs_for_snapshot",
        integer(1),
        "how many changelogs there must be before a snapshot, or a part of one, may replace them. "
        "A snapshot waits for at most 200 files that cannot be "
        "[merged](../decisions/0022-merged-changelogs.md), a part for at most 100 changelogs. When "
        "there are enough, it is due when as many bytes are outdated as it would write",
    ),
    Setting(
        "orphanGraceSeconds",
        "checkpoints.orphan_grace_seconds",
        integer(60),
        "how old [orphans](../checkpoint_format.md#deletion), such as files of failed attempts, "
        "must be before they are deleted; `storeRetrySeconds` is added",
        "s",
    ),
    Setting(
        "storeRetrySeconds",
        "checkpoints.store_retry_seconds",
        integer(1),
        "how long a failing call to the store is tried again, from its first failure, with random, "
        "growing waits of up to 5 s. Then its task fails, and Spark tries the task again. A "
        "refused permission or a similar error fails at once",
        "s",
    ),
    Setting(
        "enabled",
        "",
        TRUTH,
        "whether Spark's own `transformWithState` and `transformWithStateInPandas` run on "
        "cowstate, see [`enable`](../how-to/drop-in.md). Read at every call, if `enable` or "
        "`configure` was called in this process",
        default_shown="`false`",
    ),
    Setting(
        "fallback",
        "",
        choice("error", "spark"),
        "what happens if cowstate cannot run a call: an error, or Spark runs it and a warning says "
        "why",
        default_shown="`error`",
    ),
    Setting(
        "restoreFrom",
        "restore_from",
        or_none(EPOCH_OF_STORE),
        "what an operator [begins "
        "with](../how-to/drop-in.md#begin-with-the-state-of-another-query) while its own store has "
        "no epoch",
    ),
    Setting(
        "startEmpty",
        "checkpoints.start_empty",
        TRUTH,
        "whether an operator may begin with empty state in a query that has already run epochs. "
        "For an operator that is new in an old query",
    ),
)
SETTING_OF = {setting.key: setting for setting in SETTINGS}


def check_keys(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an unknown key below PREFIX, and for a key whose prefix is
    almost PREFIX: Spark takes any key, so a misspelled key has no effect."""
    for key in sorted(settings):
        first, second, name = [*key.split(".", 2), "", ""][:3]
        scope = f"{first}.{second}."
        if not name or key.startswith(STORE_OPTIONS_PREFIX):
            continue
        if name not in SETTING_OF if scope == PREFIX else _is_close(scope.lower(), PREFIX):
            near = difflib.get_close_matches(name, SETTING_OF, n=1) or SETTING_OF
            raise ConfigurationError(
                f"{key} is set, and there is no such setting: did you mean "
                f"{', '.join(PREFIX + each for each in near)} or {STORE_OPTIONS_PREFIX}<name>?"
            )


def _is_close(text: str, other: str) -> bool:
    return bool(difflib.get_close_matches(text, [other], cutoff=_ONE_LETTER_OF_PREFIX))
