"""`spark.cowstate.*`, parsed once into a frozen dataclass.

An unknown key or a bad value raises an error that names the key and the allowed values.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.objects.store_url import absolute_url
from spark_state.errors import ConfigurationError
from spark_state.rocksdb.database_settings import ALL_FILES, COMPRESSIONS, DatabaseSettings
from spark_state.spark.session.store_options import STORE_OPTIONS_PREFIX, store_options

PREFIX = "spark.cowstate."
STORE_KEY = f"{PREFIX}store"
RESTORE_KEY = f"{PREFIX}restoreFrom"
ENABLED_KEY = f"{PREFIX}enabled"
FALLBACK_KEY = f"{PREFIX}fallback"
LOCAL_STORE = "./cowstate-store"
MAX_PARALLELISM_LIMIT = 32_768
LEAST_MEMORY_MB = 64
_LEAST_MB_BESIDE_DATABASES = 32


@dataclass(frozen=True, slots=True)
class OperatorConfiguration:
    """The configuration of one operator.

    store: root URL; the state of a query lives under its query id and operator name.
    backend: "heap" or "rocksdb".
    rocksdb_local_directory: below which RocksDB keeps its files, None for Spark's own local
        directory.
    rocksdb_memory_mb: how much memory the databases of a host use together, in MiB.
    rocksdb_incremental: whether a snapshot of RocksDB is its own files, and only those that the
        store does not have.
    max_memory_mb: how much memory a host uses for state, input and output together, in MiB; None
        for any amount.
    rocksdb: the options of RocksDB, see DatabaseSettings.
    local_recovery: whether the files of RocksDB that the store has are kept on the local disk for
        the next host, too.
    parallelism: number of subtasks; may differ at every restart.
    max_parallelism: number of key groups; fixed when a store is created.
    hosts_per_executor: state host processes of an executor (slots).
    host_idle_seconds: a host ends after this time without a request.
    output_memory_mb: how much output of a subtask is held in memory until its epoch is durable, in
        MiB; more goes to a temporary file.
    min_epochs_to_retain: at least this many newest epochs are retained.
    min_epochs_for_snapshot: how many changelogs there must be before a snapshot replaces them.
    orphan_grace_seconds: how old orphans, which no epoch needs, must be before they are deleted.
    store_retry_seconds: how long a failing call to the store is tried again.
    start_empty: whether a query that has run epochs already may start with an empty store.
    restore_from: the store that an empty store begins with, None for nothing.
    store_options: for the clients of both stores, with secrets.
    """

    store: str
    backend: Literal["heap", "rocksdb"]
    rocksdb_local_directory: str | None
    rocksdb_memory_mb: int
    rocksdb_incremental: bool
    max_memory_mb: int | None
    rocksdb: DatabaseSettings
    local_recovery: bool
    parallelism: int
    max_parallelism: int
    hosts_per_executor: int
    host_idle_seconds: int
    output_memory_mb: int
    min_epochs_to_retain: int
    min_epochs_for_snapshot: int
    orphan_grace_seconds: int
    store_retry_seconds: int
    start_empty: bool
    restore_from: RestoreFrom | None
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """The URL of an operator's store, or of a query's directory; and the epoch, None for the
    newest."""

    url: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class _Integer:
    low: int
    high: int

    def __call__(self, key: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = self.low - 1
        if not self.low <= value <= self.high:
            raise ConfigurationError(
                f"{PREFIX}{key} is {text!r}; allowed are whole numbers from {self.low} to "
                f"{self.high}"
            )
        return value


@dataclass(frozen=True, slots=True)
class _Choice:
    allowed: tuple[str, ...]

    def __call__(self, key: str, text: str) -> str:
        if text not in self.allowed:
            raise ConfigurationError(
                f"{PREFIX}{key} is {text!r}; allowed are {', '.join(self.allowed)}"
            )
        return text


def _url(key: str, text: str) -> str:
    if not text.strip():
        raise ConfigurationError(f"{PREFIX}{key} is empty; set it to a path or an fsspec URL")
    url = text.strip()
    if url.startswith("memory:"):
        raise ConfigurationError(
            f"{PREFIX}{key} is {url!r}, but each process has a memory of its own; set it to a path "
            "or the URL of a store that all executors reach"
        )
    try:
        return absolute_url(url)
    except StoreAccessError as error:
        raise ConfigurationError(f"{PREFIX}{key} is {url!r}: {error.problem}") from error


def _limit(key: str, text: str) -> int | None:
    return _Integer(LEAST_MEMORY_MB, _MOST)(key, text) if text.strip() else None


def _local_directory(key: str, text: str) -> str | None:
    if not text.strip():
        return None
    if not Path(text.strip()).is_absolute():
        raise ConfigurationError(
            f"{PREFIX}{key} is {text!r}; set it to the absolute path of a directory that is there "
            "on all executors"
        )
    return text.strip()


def _installed(backend: Literal["heap", "rocksdb"]) -> Literal["heap", "rocksdb"]:
    """Raise ConfigurationError for a backend that needs what is not installed."""
    missing = [name for name in _NEEDED_BY[backend] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{PREFIX}backend is {backend!r}, which needs {' and '.join(missing)}; install them "
            f"for Spark's Python on all machines: pip install 'cowstate[{backend}]'"
        )
    return backend


_NEEDED_BY = {"heap": (), "rocksdb": ("rocksdict", "msgpack")}


def _restore_from(key: str, text: str) -> RestoreFrom | None:
    if not text.strip():
        return None
    url, epoch = _WITH_EPOCH.fullmatch(text.strip()).groups()  # type: ignore[union-attr]
    return RestoreFrom(_url(key, url), None if epoch is None else int(epoch))


def _open_files(key: str, text: str) -> int:
    if text == str(ALL_FILES):
        return ALL_FILES
    if not text.isdecimal() or not _FEWEST_FILES <= int(text) <= _MOST:
        raise ConfigurationError(
            f"{PREFIX}{key} is {text!r}; allowed are {ALL_FILES} for all files, and whole numbers "
            f"from {_FEWEST_FILES} to {_MOST}"
        )
    return int(text)


_FEWEST_FILES = 64
# The fields of DatabaseSettings, by their keys.
_OF_ROCKSDB = {
    "compression": "compression",
    "writeBufferMB": "write_buffer_mb",
    "tableFileMB": "table_file_mb",
    "blockSizeKB": "block_size_kb",
    "bloomBitsPerKey": "bloom_bits_per_key",
    "maxOpenFiles": "max_open_files",
    "backgroundJobs": "background_jobs",
}
_ONE_LETTER_OF_PREFIX = 0.92
_OF_SECRETS = re.compile("(?i)secret|password|token|credential|access.?key|options")
_WITH_EPOCH = re.compile(r"(.+?)(?:@(\d+))?", re.DOTALL)
_MOST = 2**31 - 1
_LOCATIONS = ("store", "restoreFrom")
_KEYS: dict[str, Callable[[str, str], Any]] = {
    "store": _url,
    "backend": _Choice(("heap", "rocksdb")),
    "rocksdb.localDirectory": _local_directory,
    "rocksdb.maxMemoryMB": _Integer(16, _MOST),
    "rocksdb.incremental": _Choice(("false", "true")),
    "maxMemoryMB": _limit,
    "rocksdb.compression": _Choice(COMPRESSIONS),
    "rocksdb.writeBufferMB": _Integer(1, 2048),
    "rocksdb.tableFileMB": _Integer(1, 2048),
    "rocksdb.blockSizeKB": _Integer(1, 4096),
    "rocksdb.bloomBitsPerKey": _Integer(0, 64),
    "rocksdb.maxOpenFiles": _open_files,
    "rocksdb.backgroundJobs": _Integer(1, 256),
    "localRecovery": _Choice(("false", "true")),
    "parallelism": _Integer(1, MAX_PARALLELISM_LIMIT),
    "maxParallelism": _Integer(1, MAX_PARALLELISM_LIMIT),
    "hostsPerExecutor": _Integer(1, 1024),
    "hostIdleSeconds": _Integer(1, _MOST),
    "outputMemoryMB": _Integer(1, _MOST),
    "minEpochsToRetain": _Integer(2, _MOST),
    "minEpochsForSnapshot": _Integer(1, _MOST),
    "orphanGraceSeconds": _Integer(60, _MOST),
    "storeRetrySeconds": _Integer(1, _MOST),
    "startEmpty": _Choice(("false", "true")),
    "restoreFrom": _restore_from,
    "enabled": _Choice(("false", "true")),
    "fallback": _Choice(("error", "spark")),
}
_DEFAULTS = {
    "backend": "heap",
    "rocksdb.localDirectory": "",
    "rocksdb.maxMemoryMB": "256",
    "rocksdb.incremental": "true",
    "maxMemoryMB": "",
    **{
        f"rocksdb.{key}": str(getattr(DatabaseSettings(), field))
        for key, field in _OF_ROCKSDB.items()
    },
    "localRecovery": "true",
    "maxParallelism": "128",
    "hostIdleSeconds": "600",
    "outputMemoryMB": "64",
    "minEpochsToRetain": "100",
    "minEpochsForSnapshot": "10",
    "orphanGraceSeconds": "86400",
    "storeRetrySeconds": str(RETRY_SECONDS),
    "startEmpty": "false",
    "restoreFrom": "",
    "enabled": "false",
    "fallback": "error",
}


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts of a session that defaults and checks depend on.

    `cores_per_executor`: task slots of one executor; `is_connect`: whether it is a session of Spark
    Connect, whose server may be on another machine; `python_memory`: the setting
    spark.executor.pyspark.memory, None if it is not set.
    """

    master: str
    default_parallelism: int
    cores_per_executor: int
    speculation: bool
    is_connect: bool = False
    python_memory: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether driver and executors share one machine's file system."""
        return is_local_master(self.master)


def is_local_master(master: str) -> bool:
    """Whether all of Spark's processes run on the driver's machine."""
    return master.startswith("local")


def is_enabled(settings: Mapping[str, str]) -> bool:
    """Whether Spark's own methods plan operators of cowstate in a session with these settings."""
    return _choice("enabled", settings) == "true"


def runs_on_spark_instead(settings: Mapping[str, str]) -> bool:
    """Whether Spark runs what cowstate cannot run."""
    return _choice("fallback", settings) == "spark"


def _choice(key: str, settings: Mapping[str, str]) -> str:
    return str(_KEYS[key](key, settings.get(f"{PREFIX}{key}", _DEFAULTS[key])))


def parse_configuration(settings: Mapping[str, str], facts: SessionFacts) -> OperatorConfiguration:
    """The configuration of a session with these settings, which may have any keys.

    Raises ConfigurationError for an unknown `spark.cowstate.` key, a bad value, a missing store on
    a cluster, speculative execution, or a limit of the memory of Python workers.
    """
    check_keys(settings)
    given = {
        key.removeprefix(PREFIX): text
        for key, text in settings.items()
        if key.startswith(PREFIX) and not key.startswith(STORE_OPTIONS_PREFIX)
    }
    if facts.is_connect:
        _refuse_relative_paths(given)
    if facts.speculation:
        raise ConfigurationError(
            "spark.speculation is true: two attempts of one task could run at once and both change "
            "the state; set spark.speculation to false"
        )
    if (facts.python_memory or "0").strip("0"):
        raise ConfigurationError(
            f"spark.executor.pyspark.memory is {facts.python_memory}: a state host would inherit "
            "the limit of one Python worker, which its state outgrows; leave the setting out, and "
            "limit the memory of state with spark.cowstate.maxMemoryMB"
        )
    defaults = _DEFAULTS | {
        "parallelism": _default_parallelism(given, facts),
        "hostsPerExecutor": str(facts.cores_per_executor),
    }
    if "store" not in given:
        defaults["store"] = _default_store(facts)
    texts = defaults | given
    values = {key: parse(key, texts[key]) for key, parse in _KEYS.items()}
    _refuse_contradictions(values, given)
    return OperatorConfiguration(
        store=values["store"],
        backend=_installed(values["backend"]),
        rocksdb_local_directory=values["rocksdb.localDirectory"],
        rocksdb_memory_mb=values["rocksdb.maxMemoryMB"],
        rocksdb_incremental=values["rocksdb.incremental"] == "true",
        max_memory_mb=values["maxMemoryMB"],
        rocksdb=DatabaseSettings(
            **{field: values[f"rocksdb.{key}"] for key, field in _OF_ROCKSDB.items()}
        ),
        local_recovery=values["localRecovery"] == "true",
        parallelism=values["parallelism"],
        max_parallelism=values["maxParallelism"],
        hosts_per_executor=values["hostsPerExecutor"],
        host_idle_seconds=values["hostIdleSeconds"],
        output_memory_mb=values["outputMemoryMB"],
        min_epochs_to_retain=values["minEpochsToRetain"],
        min_epochs_for_snapshot=values["minEpochsForSnapshot"],
        orphan_grace_seconds=values["orphanGraceSeconds"],
        store_retry_seconds=values["storeRetrySeconds"],
        start_empty=values["startEmpty"] == "true",
        restore_from=values["restoreFrom"],
        store_options=store_options(settings),
    )


def _refuse_contradictions(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Raise ConfigurationError for values that are allowed, but not together."""
    parallelism, max_parallelism = values["parallelism"], values["maxParallelism"]
    if parallelism > max_parallelism:
        raise ConfigurationError(
            f"{PREFIX}parallelism is {parallelism}, more than {PREFIX}maxParallelism "
            f"{max_parallelism}; lower the first, or raise the second before the store is created"
        )
    limit, of_databases = values["maxMemoryMB"], values["rocksdb.maxMemoryMB"]
    if limit is None:
        return
    most = limit - _LEAST_MB_BESIDE_DATABASES
    if values["backend"] == "rocksdb" and of_databases > most:
        raise ConfigurationError(
            f"{PREFIX}rocksdb.maxMemoryMB is {of_databases}, which does not leave "
            f"{_LEAST_MB_BESIDE_DATABASES} of {PREFIX}maxMemoryMB {limit} for input, output and "
            f"what an epoch changes; set the first to at most {most}, or the second to at least "
            f"{of_databases + _LEAST_MB_BESIDE_DATABASES}"
        )
    if "outputMemoryMB" in given and values["outputMemoryMB"] > limit:
        raise ConfigurationError(
            f"{PREFIX}outputMemoryMB is {values['outputMemoryMB']}, more than {PREFIX}maxMemoryMB "
            f"{limit}, of which output is a part; lower the first, or raise the second"
        )


def _default_parallelism(given: Mapping[str, str], facts: SessionFacts) -> str:
    """The session's default parallelism, but at most the number of key groups."""
    most = given.get("maxParallelism", _DEFAULTS["maxParallelism"])
    limit = int(most) if most.isdigit() else facts.default_parallelism
    return str(min(facts.default_parallelism, max(limit, 1)))


def check_keys(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a key below PREFIX that is unknown, and for a key that begins
    with PREFIX but for a letter: Spark takes any key, so it would have no effect."""
    for key, text in sorted(settings.items()):
        first, second, name = [*key.split(".", 2), "", ""][:3]
        scope = f"{first}.{second}."
        if not name or key.startswith(STORE_OPTIONS_PREFIX):
            continue
        if name not in _KEYS if scope == PREFIX else _is_close(scope.lower(), PREFIX):
            raise _unknown(key, text, name)


def _is_close(text: str, other: str) -> bool:
    return bool(difflib.get_close_matches(text, [other], cutoff=_ONE_LETTER_OF_PREFIX))


def _unknown(key: str, text: str, name: str) -> ConfigurationError:
    near = difflib.get_close_matches(name, _KEYS, n=1)
    shown = f"{key} is set" if _OF_SECRETS.search(key) else f"{key} is {text[:100]!r}"
    hint = (
        f"did you mean {PREFIX}{near[0]}?"
        if near
        else f"the keys are {', '.join(PREFIX + each for each in _KEYS)}, and "
        f"{STORE_OPTIONS_PREFIX}<name>"
    )
    return ConfigurationError(f"{shown}, and there is no such setting: {hint}")


def _refuse_relative_paths(given: Mapping[str, str]) -> None:
    for key in _LOCATIONS:
        location = given.get(key, "").strip()
        if location and "://" not in location and not location.startswith(("/", "file:")):
            raise ConfigurationError(
                f"{PREFIX}{key} is {location!r}, but a server of Spark Connect has another working "
                "directory than its client: set it to an absolute path of the server, or to a URL"
            )


def _default_store(facts: SessionFacts) -> str:
    if facts.is_connect:
        raise ConfigurationError(
            f"{PREFIX}store is not set, and the files of a server of Spark Connect are not those "
            "of its client: set it to a URL that every executor reaches, such as s3://bucket/state"
        )
    if not facts.is_local or facts.master.startswith("local-cluster"):
        raise ConfigurationError(
            f"{PREFIX}store is not set, and the executors of master {facts.master!r} need a common "
            "store: set it to a URL that every executor reaches, such as s3://bucket/state"
        )
    path = Path(LOCAL_STORE).absolute()
    warnings.warn(f"{PREFIX}store is not set; state is kept in {path}", stacklevel=4)
    return str(path)
