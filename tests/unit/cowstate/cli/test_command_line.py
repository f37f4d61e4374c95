"""The command line parses arguments, and errors tell the user the way out."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from cowstate.cli.command_line import argument_parser, main
from cowstate.cli.demo_run import DEMO_PACKAGES
from cowstate.demo.job import DemoOptions, prepare_replay
from spark_state.errors import ConfigurationError


def options(out: Path, **changes: Any) -> DemoOptions:
    values = {"store": None, "checkpoint": None, "master": "local[2]", "flights": 50}
    return DemoOptions(out=out, **{**values, **changes})


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"cowstate {version('cowstate')}\n"


def test_the_demo_has_defaults_for_everything() -> None:
    parsed = argument_parser().parse_args(["demo"])
    assert parsed.out == Path("cowstate-demo")
    assert (parsed.store, parsed.checkpoint, parsed.flights) == (None, None, None)
    assert (parsed.master, parsed.json) == ("local[2]", False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: command"),
        (["dmeo"], "invalid choice: 'dmeo'"),
        (["demo", "--flights", "0"], "argument --flights: '0' is not a whole number from 1"),
        (["demo", "--flights", "many"], "argument --flights: 'many' is not a whole number from 1"),
        (["attach", "place"], "the following arguments are required: --store"),
        (["demo", "--sotre", "x"], "unrecognized arguments: --sotre"),
    ],
)
def test_wrong_arguments_end_with_code_2_and_say_which(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_package_of_the_extra_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_none(_name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_none)
    assert main(["demo"]) == 2
    message = f"cowstate: the demo needs {', '.join(DEMO_PACKAGES)}: pip install 'cowstate[demo]'"
    assert capsys.readouterr().err.startswith(message)


def test_output_places_are_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("taken")
    out = tmp_path / "file" / "out"
    assert main(["demo", "--flights", "50", "--out", str(out)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"cowstate: cannot write to {out}: ")
    assert "choose another --out" in message


def test_places_lie_below_out_unless_they_are_given(tmp_path: Path) -> None:
    own, given = options(tmp_path), options(tmp_path, store="s3://b/s", checkpoint="/c")
    assert own.store_url == str(tmp_path / "store")
    assert own.checkpoint_url == str(tmp_path / "checkpoint")
    assert (given.store_url, given.checkpoint_url) == ("s3://b/s", "/c")


def test_a_prepared_run_is_found_again(tmp_path: Path) -> None:
    first = prepare_replay(options(tmp_path))
    assert (first.flights, first.files) == (50, 1)
    (tmp_path / "input" / "flights-000.parquet").unlink()
    assert prepare_replay(options(tmp_path)) == first
    assert list((tmp_path / "input").iterdir()) == []


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    prepare_replay(options(tmp_path))
    with pytest.raises(ConfigurationError, match=r"\(50, .* but this run has \(51, .* --out"):
        prepare_replay(options(tmp_path, flights=51))


@pytest.mark.parametrize(
    ("arguments", "started", "left"),
    [
        (["adopt", "place"], "stopped_query_run.adopt_and_print", "the checkpoint is as it was"),
        (["compact", "place"], "compaction_run.compact_and_print", "the table is as it was"),
        (
            ["attach", "place", "--store", "s"],
            "attach_run.attach_and_print",
            "with --apply, some operators may be attached: run the command again, it goes on with "
            "the rest",
        ),
    ],
)
def test_a_command_that_is_stopped_says_what_it_leaves(
    arguments: list[str],
    started: str,
    left: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"cowstate.cli.{started}", stop)
    assert main(arguments) == 130
    assert capsys.readouterr().err == f"cowstate: stopped; {left}\n"
