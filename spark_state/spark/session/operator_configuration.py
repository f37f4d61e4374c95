"""The configuration of an operator: the session's settings below `spark.cowstate.`, checked.

The table in operator_settings names the field of each setting. An unknown key or a bad value raises
an error that names the key and the allowed values.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.executor import HostSettings
from spark_state.rocksdb.database_settings import DatabaseSettings
from spark_state.spark.session.operator_settings import SETTING_OF, check_keys
from spark_state.spark.session.setting_values import PREFIX, RestoreFrom
from spark_state.spark.session.store_options import STORE_OPTIONS_PREFIX, store_options
from spark_state.subtasks.epoch_request import BackendSettings, CheckpointSettings

STORE_KEY = f"{PREFIX}store"
RESTORE_KEY = f"{PREFIX}restoreFrom"
ENABLED_KEY = f"{PREFIX}enabled"
FALLBACK_KEY = f"{PREFIX}fallback"
LOCAL_STORE = "./cowstate-store"
DEFAULT_MAX_PARALLELISM = 128
_LEAST_MB_BESIDE_DATABASES = 32
_LOCATIONS = ("store", "restoreFrom")
_NEEDED_BY = {"heap": (), "rocksdb": ("rocksdict", "msgpack")}


@dataclass(frozen=True, slots=True)
class OperatorConfiguration:
    """The configuration of one operator; operator_settings has the meaning of each setting.
    `store_root`: root URL; `checkpoints`: settings without a source of the first state; the source
    is found when the operator is planned; `restore_from`: where the user wants to restore from,
    None if not set."""

    store_root: str
    parallelism: int
    backend: BackendSettings
    checkpoints: CheckpointSettings
    hosts: HostSettings
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    output_memory_mb: int = 64
    restore_from: RestoreFrom | None = None


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


def is_one_process(master: str) -> bool:
    """Return True if the driver's JVM is the only executor."""
    return is_local_master(master) and not master.startswith("local-cluster")


def is_enabled(settings: Mapping[str, str]) -> bool:
    """Return True if Spark's own methods plan operators of cowstate in a session with these
    settings."""
    return bool(_given("enabled", settings))


def runs_on_spark_instead(settings: Mapping[str, str]) -> bool:
    """Return True if Spark runs the calls that cowstate cannot run."""
    return bool(_given("fallback", settings) == "spark")


def _given(key: str, settings: Mapping[str, str]) -> Any:
    """The parsed value of a setting, None if the session does not have the setting."""
    text = settings.get(f"{PREFIX}{key}")
    return None if text is None else SETTING_OF[key].values.parse(key, text)


def parse_configuration(settings: Mapping[str, str], facts: SessionFacts) -> OperatorConfiguration:
    """The configuration of operators in a session. `settings`: the session's settings; keys without
    the prefix `spark.cowstate.` are mostly ignored. Raises ConfigurationError for an unknown
    `spark.cowstate.` key, a bad value, a missing store on a cluster, speculative execution, or a
    memory limit for Python workers."""
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
    texts = {
        "parallelism": _default_parallelism(settings, facts),
        "hostsPerExecutor": str(facts.cores_per_executor),
        **given,
    }
    if "store" not in texts:
        texts["store"] = _default_store(facts)
    values = {
        setting.field: setting.values.parse(key, texts[key])
        for key, setting in SETTING_OF.items()
        if key in texts
    }
    configuration = _filled(values, store_options(settings))
    _refuse_contradictions(configuration, given)
    _check_installed(configuration.backend.kind)
    return configuration


def _filled(values: Mapping[str, Any], options: Mapping[str, Any]) -> OperatorConfiguration:
    """The configuration with these values. `values`: by the path of a field, such as
    `backend.kind`; a field without a value has its default. `options`: for the clients of
    stores."""

    def fields_of(group: str) -> dict[str, Any]:
        parts = ((*path.rpartition("."), value) for path, value in values.items())
        return {name: value for parent, _, name, value in parts if parent == group and name}

    database = DatabaseSettings(**fields_of("backend.database"))
    return OperatorConfiguration(
        backend=BackendSettings(database=database, **fields_of("backend")),
        checkpoints=CheckpointSettings(store_options=options, **fields_of("checkpoints")),
        hosts=HostSettings(**fields_of("hosts")),
        **fields_of(""),
    )


def _check_installed(backend: str) -> None:
    """Raise ConfigurationError for a backend whose packages are not installed."""
    missing = [name for name in _NEEDED_BY[backend] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{PREFIX}backend is {backend!r}, which needs {' and '.join(missing)}; install them "
            f"for Spark's Python on all machines: pip install 'cowstate[{backend}]'"
        )


def _refuse_contradictions(configuration: OperatorConfiguration, given: Mapping[str, str]) -> None:
    """Raise ConfigurationError for values that are allowed, but not together."""
    parallelism, max_parallelism = configuration.parallelism, configuration.max_parallelism
    if parallelism > max_parallelism:
        raise ConfigurationError(
            f"{PREFIX}parallelism is {parallelism}, more than {PREFIX}maxParallelism "
            f"{max_parallelism}; lower the first, or raise the second before the store is created"
        )
    limit, backend = configuration.hosts.max_memory_mb, configuration.backend
    if limit is None:
        return
    most = limit - _LEAST_MB_BESIDE_DATABASES
    if backend.kind == "rocksdb" and backend.memory_mb > most:
        raise ConfigurationError(
            f"{PREFIX}rocksdb.maxMemoryMB is {backend.memory_mb}, which does not leave "
            f"{_LEAST_MB_BESIDE_DATABASES} of {PREFIX}maxMemoryMB {limit} for input, output and "
            f"what an epoch changes; set the first to at most {most}, or the second to at least "
            f"{backend.memory_mb + _LEAST_MB_BESIDE_DATABASES}"
        )
    if "outputMemoryMB" in given and configuration.output_memory_mb > limit:
        raise ConfigurationError(
            f"{PREFIX}outputMemoryMB is {configuration.output_memory_mb}, more than "
            f"{PREFIX}maxMemoryMB {limit}, of which output is a part; lower the first, or raise "
            "the second"
        )


def _default_parallelism(settings: Mapping[str, str], facts: SessionFacts) -> str:
    """The session's default parallelism, but at most the number of key groups."""
    most = _given("maxParallelism", settings) or DEFAULT_MAX_PARALLELISM
    return str(min(facts.default_parallelism, most))


def _refuse_relative_paths(given: Mapping[str, str]) -> None:
    for key in _LOCATIONS:
        location = given.get(key, "").strip()
        if location and "://" not in location and not location.startswith(("/", "file:")):
            raise ConfigurationError(
                f"{PREFIX}{key} is {location!r}, but a server of Spark Connect has another working "
                "directory than its client: set it to an absolute path of the server, or to a URL"
            )


def _default_store(facts: SessionFacts) -> str:
    is_alone = is_one_process(facts.master)
    if facts.is_connect or not is_alone:
        raise ConfigurationError(
            f"{PREFIX}store is not set, and the executors of master {facts.master!r} need a common "
            "store: set it to a URL that every executor reaches, such as s3://bucket/state"
        )
    path = Path(LOCAL_STORE).absolute()
    warnings.warn(f"{PREFIX}store is not set; state is kept in {path}", stacklevel=4)
    return str(path)
