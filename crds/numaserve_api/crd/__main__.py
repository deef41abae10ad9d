"""`python -m numaserve_api.crd [--check]`: write the generated files, or fail when they are stale."""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path

from numaserve_api import names
from numaserve_api.config import ConfigDeploy
from numaserve_api.crd.generate import document

ROOT = Path(__file__).resolve().parents[3]


def outputs() -> dict[Path, str]:
    """Every generated file with its text."""
    crd = document()
    name = f"{names.PLURAL}.{names.GROUP}.yaml"
    config_schema = json.dumps(ConfigDeploy.model_json_schema(by_alias=True), indent=2) + "\n"
    return {
        ROOT / "crds" / name: crd,
        ROOT / "charts" / "numaserve" / "crds" / name: crd,
        ROOT / "crds" / "config_deploy.schema.json": config_schema,
    }


def main(arguments: list[str]) -> int:
    """Write, or with --check compare; exit code 1 when a checked-in file differs."""
    stale = False
    for path, text in outputs().items():
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        if "--check" in arguments:
            stale = True
            sys.stderr.writelines(
                difflib.unified_diff(old.splitlines(True), text.splitlines(True), str(path), "generated")
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        sys.stderr.write("generated files are stale: run `make generate`\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
