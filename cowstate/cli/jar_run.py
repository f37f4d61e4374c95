"""Runs `cowstate jar`: prints the path of the provider's jar."""

from __future__ import annotations

from argparse import Namespace

from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.provider.session_configuration import jar_path


def print_jar(arguments: Namespace) -> None:
    """Run the command. Raises ConfigurationError when the jar was not built."""
    jar = jar_path()
    print(f"--jars {jar} --conf {PROVIDER_KEY}={PROVIDER_CLASS}" if arguments.options else jar)
