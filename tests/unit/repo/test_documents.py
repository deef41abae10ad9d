"""Documents agree with the code, and nothing of a machine is in the tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from numaserve_api.conditions import Reason
from numaserve_api.unsupported import TABLE
from numaserve_api.validate import parse_spec

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = (
    "/wor" + "k/",
    "/roo" + "t/",
    "pypi" + ".org",
    "pythonhost" + "ed",
    "proxy.golang" + ".org",
    "deb.debian" + ".org",
)


def tracked(pattern: str) -> list[Path]:
    """Files of the repository."""
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_every_reason_has_a_remedy() -> None:
    table = (ROOT / "docs" / "conditions.md").read_text()
    rows = re.findall(r"^\| ([A-Za-z]+) \| [^|]+ \| [^|]+ \|$", table, re.MULTILINE)
    assert [row for row in rows if row != "reason"] == [reason.value for reason in Reason]


def test_every_unsupported_field_is_listed() -> None:
    listed = set(re.findall(r"^\| `([a-zA-Z.]+)` \|", (ROOT / "docs" / "limits.md").read_text(), re.MULTILINE))
    assert listed == {entry.path for entry in TABLE}


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs", "deploy"])
def test_relative_links_lead_somewhere(document: str) -> None:
    files = [ROOT / document] if document.endswith(".md") else sorted((ROOT / document).rglob("*.md"))
    broken = [
        f"{file.name}: {target}"
        for file in files
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text())
        if not (file.parent / target).exists()
    ]
    assert broken == []


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE)
    described = re.findall(r"^(\S+):.*## \S", makefile, re.MULTILINE)
    assert set(targets) <= set(described)


def test_nothing_of_a_machine_or_a_registry_is_tracked() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked("*")
        if path.suffix not in (".sum", ".svg", ".bin")
        for word in FORBIDDEN
        if word in path.read_text(errors="replace")
    ]
    assert found == []


def test_no_file_grows_beyond_four_hundred_lines() -> None:
    sizes = {
        str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in tracked("*.py") if "tests" not in p.parts
    }
    assert {name: size for name, size in sizes.items() if size > 400} == {}


@pytest.mark.parametrize(
    "sample", sorted((ROOT / "deploy" / "samples").glob("ticket-router*.yaml")), ids=lambda p: p.name
)
def test_samples_are_valid(sample: Path) -> None:
    assert parse_spec(yaml.safe_load(sample.read_text())).config.threads == 1
