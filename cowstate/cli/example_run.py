"""Runs `cowstate example`: copies an example into a directory."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path

import cowstate
from spark_state.errors import ConfigurationError

# By name: the directory below the examples, and what to do next.
_EXAMPLES = {
    "kafka": ("kafka", "run it: python {}/run.py"),
    "monitoring": (
        "kafka/monitoring",
        "name {}/alerts.yml in the rule_files of Prometheus, import {}/dashboard.json in Grafana",
    ),
}


def copy_example(arguments: Namespace) -> None:
    """Run the command. Raises ConfigurationError if the directory is there already, or cannot be
    made."""
    directory, next_step = _EXAMPLES[arguments.name]
    target = arguments.to or Path(f"{arguments.name}-example")
    if target.exists():
        raise ConfigurationError(f"{target} is there already: name a new directory with --to")
    try:
        shutil.copytree(
            _examples() / directory, target, ignore=shutil.ignore_patterns("__pycache__")
        )
    except OSError as error:
        raise ConfigurationError(f"cannot write into {target}: {error}") from error
    print(f"{target} is there; {next_step.replace('{}', str(target))}")


def _examples() -> Path:
    """The directory of the examples: in the package, or in the clone beside the package."""
    package = Path(cowstate.__file__).parent
    packed = package / "examples"
    return packed if packed.is_dir() else package.parent / "examples"
