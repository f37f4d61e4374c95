"""ARCHITECTURE.md is short, and names only existing packages, modules, folders and tests."""

from __future__ import annotations

import configparser
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MOST_WORDS = 1200
INVARIANTS = re.findall(r"^\| (I\d) [^|]+\|[^|]+\|([^|]+)\|([^|]+)\|$", TEXT, re.MULTILINE)
PACKAGES = ("checkpoint_store", "cowstate", "datasources", "spark_state")
MODULES = sorted(set(re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`", TEXT)))
PICTURE, BATCH = re.findall(r"^```text\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
PATHS = sorted(set(re.findall(r"`((?:[\w-]+/)+[\w.-]+|\w+\.cfg)`|\]\(([^)#]+)", TEXT)))


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(TEXT.split()) <= MOST_WORDS


def test_all_invariants_are_there_each_with_modules_and_tests() -> None:
    assert [name for name, _, _ in INVARIANTS] == [f"I{number}" for number in range(1, 10)]
    assert all("`" in modules and "`tests/" in tests for _, modules, tests in INVARIANTS)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_it_names_is_there(module: str) -> None:
    package, _, name = module.rpartition(".")
    if importlib.util.find_spec(module) is None:
        assert hasattr(importlib.import_module(package), name)


@pytest.mark.parametrize("path", ["".join(pair) for pair in PATHS])
def test_a_path_that_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def layers(contract: str) -> list[set[str]]:
    """Return the layers of a contract in setup.cfg, from the top."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config[f"importlinter:contract:{contract}"]["layers"].split("\n")
    return [set(line.split(" | ")) for line in lines if line]


def rooms_in_picture() -> dict[str, list[str]]:
    """Return the rooms that the picture shows, by package, from top to bottom."""
    rooms: dict[str, list[str]] = {}
    for line in PICTURE.splitlines():
        drawn = re.fullmatch(r"(?P<package>\w+) +\S.*|   \||(?:   \|   | {7})(?P<rooms>\w.*)", line)
        assert drawn is not None, f"out of line: {line!r}"
        if drawn["package"]:
            rooms[drawn["package"]] = []
        elif drawn["rooms"]:
            names = re.split("  +", drawn["rooms"])[0]
            rooms[next(reversed(rooms))] += re.split("[, ]+", names)
    return rooms


def test_the_picture_shows_the_packages_from_top_to_bottom() -> None:
    assert [{package} for package in rooms_in_picture()] == layers("packages")


@pytest.mark.parametrize(
    ("package", "contract"), [("spark_state", "engine"), ("checkpoint_store", "stores")]
)
def test_the_picture_shows_rooms_in_the_order_of_their_layers(package: str, contract: str) -> None:
    rooms, order = rooms_in_picture()[package], layers(contract)
    places = [[place for place, layer in enumerate(order) if room in layer] for room in rooms]
    assert rooms
    assert all(places), f"not a room of {package}: {rooms}"
    assert places == sorted(places)


def test_each_step_of_a_batch_names_a_room() -> None:
    steps = [line[11:].split()[0] for line in BATCH.splitlines()]
    assert len(steps) >= 10
    for step in steps:
        path = step.replace(".", "/")
        homes = (ROOT / path, ROOT / "spark_state" / path, ROOT / "checkpoint_store" / path)
        assert any((home / "__init__.py").exists() for home in homes), f"no room {step}"


def test_a_batch_on_the_provider_names_folders_of_scala() -> None:
    (paragraph,) = re.findall(r"^A batch on the provider.*?(?=\n\n)", TEXT, re.M | re.S)
    folders = set(re.findall(r"`(\w+)`", paragraph))
    assert {"provider", "map"} <= folders
    assert folders <= {path.name for path in (ROOT / "spark_state" / "jvm").iterdir()}
