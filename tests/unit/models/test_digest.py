"""Verifying an artifact: any single change is found and named, whatever it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from numaserve_api.config import Pooling, Task
from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE, ModelFacts
from numaserve_models import digest
from numaserve_models.artifact import seal
from numaserve_models.cli import app
from numaserve_models.digest import artifact_hash, digest_file, entries, find_faults
from numaserve_models.errors import ExportError
from tests.unit.serving.conftest import make_config

NOTHING = "sha256:" + "0" * 64
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,6}", fullmatch=True)
trees = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map("/".join), st.binary(max_size=64), min_size=1, max_size=6
)


def write_artifact(root: Path, tree: dict[str, bytes]) -> str:
    """A sealed directory with these files; a file that would lie below another file is left out. Its hash."""
    root.mkdir()
    for name, content in tree.items():
        path = root / name
        if path.exists() or any((root / parent).is_file() for parent in Path(name).parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    facts = ModelFacts(
        task=Task.EMBEDDING, pooling=Pooling.MEAN, normalize=True, dimensions=[8], max_tokens=16, positions=16,
        layers=["full"], space="x@1", weights_digest=NOTHING, tokenizer_digest=NOTHING,
    )  # fmt: skip
    return seal(root, facts, make_config(NOTHING), {})


def flip(path: Path, outside: Path, at: int) -> str:
    """One bit of the content, or a byte more where there is none."""
    content = bytearray(path.read_bytes())
    if content:
        content[at % len(content)] ^= 1 << at % 8
    path.write_bytes(bytes(content) or b"x")
    return "changed"


def grow(path: Path, outside: Path, at: int) -> str:
    """One byte at the end."""
    path.write_bytes(path.read_bytes() + b"\0")
    return "changed"


def remove(path: Path, outside: Path, at: int) -> str:
    """The file goes away."""
    path.unlink()
    return "missing"


def rename(path: Path, outside: Path, at: int) -> str:
    """The file gets another name."""
    path.rename(path.with_name(path.name + ".bak"))
    return "missing"


def link(path: Path, outside: Path, at: int) -> str:
    """The same content, but behind a link."""
    shutil.copy(path, outside)
    path.unlink()
    path.symlink_to(outside)
    return "linked"


def pipe(path: Path, outside: Path, at: int) -> str:
    """A fifo: opening it would wait for ever."""
    path.unlink()
    os.mkfifo(path)
    return "special"


def folder(path: Path, outside: Path, at: int) -> str:
    """A directory of that name."""
    path.unlink()
    path.mkdir()
    return "special"


CHANGES: tuple[Callable[[Path, Path, int], str], ...] = (flip, grow, remove, rename, link, pipe, folder)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, change=st.sampled_from(CHANGES), which=st.integers(0, 99), at=st.integers(0, 511))
def test_any_single_change_is_found_and_named(
    tree: dict[str, bytes], change: Callable[[Path, Path, int], str], which: int, at: int
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "artifact"
        write_artifact(
            root, {name: content for name, content in tree.items() if name not in (MANIFEST_FILE, CONFIG_FILE)}
        )
        assert find_faults(root) == []
        files = sorted(p for p in root.rglob("*") if p.is_file() and p.name not in (MANIFEST_FILE, CONFIG_FILE))
        if not files:
            return
        chosen = files[which % len(files)]
        kind = change(chosen, Path(temporary) / "outside", at)
        named = [fault for fault in digest.verify(root).faults if fault.path == chosen.relative_to(root).as_posix()]
        assert [fault.kind for fault in named] == [kind]
        added = [fault.path for fault in digest.verify(root).faults if fault.kind == "added"]
        assert added == ([chosen.relative_to(root).as_posix() + ".bak"] if change is rename else [])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A sealed directory of three files."""
    write_artifact(tmp_path / "artifact", {"a.bin": b"abc", "sub/b.bin": b"b", "sub/deep/c.bin": b"c"})
    return tmp_path / "artifact"


def test_files_below_a_linked_directory_escape(root: Path, tmp_path: Path) -> None:
    (root / "sub").rename(tmp_path / "elsewhere")
    (root / "sub").symlink_to(tmp_path / "elsewhere")
    assert find_faults(root) == [
        f"linked: sub leads to {tmp_path / 'elsewhere'}",
        "escaping: sub/b.bin lies below sub, a link",
        "escaping: sub/deep/c.bin lies below sub, a link",
    ]


@pytest.mark.parametrize("path", ["../outside", "sub/../../outside", "/etc/hostname", "", 7])
def test_a_manifest_that_leads_out_is_named_and_nothing_there_is_read(root: Path, tmp_path: Path, path: Any) -> None:
    (tmp_path / "outside").write_bytes(b"abc")
    manifest = json.loads((root / MANIFEST_FILE).read_bytes())
    manifest["files"].append({"path": path, "size": 3, "digest": "sha256:" + hashlib.sha256(b"abc").hexdigest()})
    (root / MANIFEST_FILE).write_text(json.dumps(manifest))
    assert f"escaping: {path} is listed but is no path inside the artifact" in find_faults(root)


def test_added_files_links_sockets_and_strange_names_are_named_on_one_line_each(root: Path) -> None:
    (root / "sub" / "new").write_bytes(b"")
    (root / "loop").symlink_to("loop")
    (root / "two\nlines").write_bytes(b"")
    with socket.socket(socket.AF_UNIX) as sock:
        before = Path.cwd()
        os.chdir(root)  # a socket's path may be too short for a test's folder
        try:
            sock.bind("sock")
        finally:
            os.chdir(before)
        assert find_faults(root) == [
            "linked: loop leads to loop",
            "special: sock is a socket",
            "added: sub/new",
            "added: 'two\\nlines'",
        ]


def test_what_cannot_be_read_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("a.bin"):
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert find_faults(root) == ["unreadable: a.bin (Permission denied)"]


def test_a_file_that_became_a_link_after_the_directory_was_listed_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "same").write_bytes(b"abc")
    really = os.open

    def exchange(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("a.bin"):
            Path(path).unlink()
            Path(path).symlink_to(tmp_path / "same")
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "open", exchange)
    assert [fault.kind for fault in digest.verify(root).faults] == ["unreadable"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no manifest"),
        (b"[" * 100_000, "is no manifest"),
        (b'{"version": 1, "files": [3]}', "is no manifest"),
        (b'{"version": 1, "files": []}', "manifest.json.parts is required"),
    ],
)
def test_a_broken_manifest_is_one_sentence(root: Path, content: bytes, words: str) -> None:
    (root / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(ExportError, match=words):
        find_faults(root)


def test_a_file_listed_twice_and_a_linked_manifest_are_refused(root: Path, tmp_path: Path) -> None:
    manifest = json.loads((root / MANIFEST_FILE).read_bytes())
    manifest["files"] += manifest["files"][:1]
    (root / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(ExportError, match=r"lists a\.bin twice"):
        find_faults(root)
    (root / MANIFEST_FILE).rename(tmp_path / "m")
    (root / MANIFEST_FILE).symlink_to(tmp_path / "m")
    with pytest.raises(ExportError, match="is a link"):
        artifact_hash(root)


def test_large_files_are_digested_in_pieces_and_counted(tmp_path: Path) -> None:
    content = bytes(range(256)) * (3 * digest.CHUNK // 256) + b"tail"
    (tmp_path / "large").write_bytes(content)
    pieces: list[int] = []
    assert digest_file(tmp_path / "large", pieces.append) == "sha256:" + hashlib.sha256(content).hexdigest()
    assert pieces == [digest.CHUNK] * 3 + [4]


def test_entries_come_in_order_of_name_however_many_are_read_at_once(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").write_bytes(b"x" * (30 - number))
    found = entries(tmp_path, [f"{n:02}" for n in reversed(range(30))])
    assert [(e.path, e.size) for e in found] == [(f"{n:02}", 30 - n) for n in range(30)]


def run(*words: object) -> Any:
    """The command as a person types it."""
    return CliRunner().invoke(app, list(map(str, words)))


def test_the_command_tells_the_hash_and_whether_everything_agrees(root: Path) -> None:
    assert run("hash", root).stdout.strip() == artifact_hash(root)
    assert json.loads(run("hash", root, "--json").stdout)["hash"] == artifact_hash(root)
    whole = json.loads(run("verify", root, "--json").stdout)
    assert (whole["whole"], whole["files"], whole["bytes"], whole["faults"], whole["config"]) == (True, 3, 5, [], None)
    (root / "a.bin").write_bytes(b"abd")
    broken = run("verify", root, "--json")
    assert broken.exit_code == 1
    assert json.loads(broken.stdout)["faults"] == [{"kind": "changed", "path": "a.bin", "detail": ""}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p.write_text(p.read_text().replace("hash: sha256:", "hash: sha256:f")[:-1]), "cannot be used"),
        (lambda p: p.unlink(), "is missing"),
        (lambda p: (p.unlink(), p.mkdir()), "cannot be used"),
    ],
)
def test_a_config_of_no_use_is_no_fault_of_the_files_but_is_told(
    root: Path, change: Callable[[Path], object], words: str
) -> None:
    change(root / CONFIG_FILE)
    assert find_faults(root) == []
    done = run("verify", root)
    assert done.exit_code == 1
    assert done.stdout.startswith("config: ")
    assert words in done.stdout


def test_a_config_with_another_hash_is_told_with_both(root: Path) -> None:
    config = root / CONFIG_FILE
    config.write_text(config.read_text().replace(artifact_hash(root), NOTHING))
    done = run("verify", root)
    assert done.exit_code == 1
    assert done.stdout == (
        f"config: config_deploy.yaml names {NOTHING}, manifest.json has {artifact_hash(root)}: "
        "a server would refuse it; correct model.hash\n"
    )
