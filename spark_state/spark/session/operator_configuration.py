"""The configuration of an operator: the session's settings below `spark.cowstate.`, checked.

An unknown key or a bad value raises an error that names the key and the allowed values.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.rocksdb.database_settings import DatabaseSettings
from spark_state.spark.session.operator_settings import SETTING_OF, SETTINGS, check_keys
from spark_state.spark.session.setting_values import PREFIX, RestoreFrom
from spark_state.spark.session.store_options import STORE_OPTIONS_PREFIX, store_options
from spark_state.subtasks.epoch_request import BackendSettings, CheckpointSettings, HostSettings

STORE_KEY = f"{PREFIX}store"
RESTORE_KEY = f"{PREFIX}restoreFrom"
ENABLED_KEY = f"{PREFIX}enabled"
FALLBACK_KEY = f"{PREFIX}fallback"
LOCAL_STORE = "./cowstate-store"
_LEAST_MB_BESIDE_DATABASES = 32
_LOCATIONS = ("store", "restoreFrom")
_NEEDED_BY = {"heap": (), "rocksdb": ("rocksdict", "msgpack")}


@dataclass(frozen=True, slots=True)
class OperatorConfiguration:
    """The configuration of one operator; operator_settings has the meaning of each setting.
    `store`: root URL; `max_memory_mb`: None for no limit; `checkpoints`: without the epoch to
    restore from, which is found when the operator is planned; `restore_from`: None if not set."""

    store: str
    parallelism: int
    max_parallelism: int
    max_memory_mb: int | None
    output_memory_mb: int
    backend: BackendSettings
    checkpoints: CheckpointSettings
    hosts: HostSettings
    restore_from: RestoreFrom | None


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts of a session that defaults and checks depend on. `cores_per_executor`: task slots
    of one executor; `is_connect`: True for a session of Spark Connect, whose server may be on
    another machine; `python_memory`: the setting spark.executor.pyspark.memory, None if not set."""

    master: str
    default_parallelism: int
    cores_per_executor: int
    speculation: bool
    is_connect: bool = False
    python_memory: str | None = None


def is_local_master(master: str) -> bool:
    """Return True if all of Spark's processes run on the driver's machine."""
    return master.startswith("local")


def is_enabled(settings: Mapping[str, str]) -> bool:
    """Return True if Spark's own methods plan operators of cowstate in a session with these
    settings."""
    return bool(_value("enabled", settings))


def runs_on_spark_instead(settings: Mapping[str, str]) -> bool:
    """Return True if Spark runs the calls that cowstate cannot run."""
    return bool(_value("fallback", settings) == "spark")


def _value(key: str, settings: Mapping[str, str]) -> Any:
    setting = SETTING_OF[key]
    return setting.values.parse(key, settings.get(f"{PREFIX}{key}", str(setting.default)))


def parse_configuration(settings: Mapping[str, str], facts: SessionFacts) -> OperatorConfiguration:
    """The configuration of a session with these settings, which may have any keys. Raises
    ConfigurationError for an unknown `spark.cowstate.` key, a bad value, a missing store on a
    cluster, speculative execution, or a limit of the memory of Python workers."""
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
    texts = {setting.key: setting.default for setting in SETTINGS if setting.default is not None}
    texts["parallelism"] = _default_parallelism(given, facts)
    texts["hostsPerExecutor"] = str(facts.cores_per_executor)
    texts |= given
    if "store" not in texts:
        texts["store"] = _default_store(facts)
    values = {each.key: each.values.parse(each.key, texts[each.key]) for each in SETTINGS}
    _refuse_contradictions(values, given)
    _check_installed(values["backend"])
    return OperatorConfiguration(
        store=values["store"],
        parallelism=values["parallelism"],
        max_parallelism=values["maxParallelism"],
        max_memory_mb=values["maxMemoryMB"],
        output_memory_mb=values["outputMemoryMB"],
        backend=_backend_settings(values),
        checkpoints=CheckpointSettings(
            min_epochs_to_retain=values["minEpochsToRetain"],
            min_epochs_for_snapshot=values["minEpochsForSnapshot"],
            orphan_grace_seconds=values["orphanGraceSeconds"],
            store_retry_seconds=values["storeRetrySeconds"],
            start_empty=values["startEmpty"],
            store_options=store_options(settings),
        ),
        hosts=HostSettings(values["hostsPerExecutor"], values["hostIdleSeconds"]),
        restore_from=values["restoreFrom"],
    )


def _backend_settings(values: Mapping[str, Any]) -> BackendSettings:
    return BackendSettings(
        kind=values["backend"],
        local_directory=values["rocksdb.localDirectory"],
        memory_mb=values["rocksdb.maxMemoryMB"],
        incremental=values["rocksdb.incremental"],
        local_recovery=values["localRecovery"],
        database=DatabaseSettings(
            compression=values["rocksdb.compression"],
            write_buffer_mb=values["rocksdb.writeBufferMB"],
            table_file_mb=values["rocksdb.tableFileMB"],
            block_size_kb=values["rocksdb.blockSizeKB"],
            bloom_bits_per_key=values["rocksdb.bloomBitsPerKey"],
            max_open_files=values["rocksdb.maxOpenFiles"],
            background_jobs=values["rocksdb.backgroundJobs"],
        ),
    )


def _check_installed(backend: str) -> None:
    """Raise ConfigurationError for a backend whose packages are not installed."""
    missing = [name for name in _NEEDED_BY[backend] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{PREFIX}backend is {backend!r}, which needs {' and '.join(missing)}; install them "
            f"for Spark's Python on all machines: pip install 'cowstate[{backend}]'"
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
    most = given.get("maxParallelism", str(SETTING_OF["maxParallelism"].default))
    limit = int(most) if most.isdigit() else facts.default_parallelism
    return str(min(facts.default_parallelism, max(limit, 1)))


def _refuse_relative_paths(given: Mapping[str, str]) -> None:
    for key in _LOCATIONS:
        location = given.get(key, "").strip()
        if location and "://" not in location and not location.startswith(("/", "file:")):
            raise ConfigurationError(
                f"{PREFIX}{key} is {location!r}, but a server of Spark Connect has another working "
                "directory than its client: set it to an absolute path of the server, or to a URL"
            )


def _default_store(facts: SessionFacts) -> str:
    is_alone = is_local_master(facts.master) and not facts.master.startswith("local-cluster")
    if facts.is_connect or not is_alone:
        raise ConfigurationError(
            f"{PREFIX}store is not set, and the executors of master {facts.master!r} need a common "
            "store: set it to a URL that every executor reaches, such as s3://bucket/state"
        )
    path = Path(LOCAL_STORE).absolute()
    warnings.warn(f"{PREFIX}store is not set; state is kept in {path}", stacklevel=4)
    return str(path)
