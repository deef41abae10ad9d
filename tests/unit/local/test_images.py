"""Image names follow their content."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster import images
from localcluster.errors import ClusterError
from localcluster.nodes import image_digest
from localcluster.paths import REPOSITORY

LISTING = """\
REF                                     TYPE          DIGEST      SIZE      PLATFORMS   LABELS
numaserve.local/serving:1234            application/x sha256:aaaa 439.0 MiB linux/amd64 io.cri-containerd.image=managed
numaserve.local/serving:12345           application/x sha256:bbbb 439.0 MiB linux/amd64 io.cri-containerd.image=managed
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("a = 1\n")
    return tmp_path


def hashed(tree: Path) -> str:
    return images.content_hash([tree / "package"], tree)


def test_a_changed_line_changes_the_name(tree: Path) -> None:
    before = hashed(tree)
    (tree / "package" / "a.py").write_text("a = 2\n")
    assert hashed(tree) != before


def test_a_renamed_file_changes_the_name(tree: Path) -> None:
    before = hashed(tree)
    (tree / "package" / "a.py").rename(tree / "package" / "b.py")
    assert hashed(tree) != before


def test_compiled_files_do_not_change_the_name(tree: Path) -> None:
    before = hashed(tree)
    (tree / "package" / "__pycache__").mkdir()
    (tree / "package" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert hashed(tree) == before


def test_an_image_is_named_by_its_content() -> None:
    name, _, tag = images.reference(images.chosen(["operator"])[0]).rpartition(":")
    assert name == "numaserve.local/operator"
    assert len(tag) == 12
    assert int(tag, 16) >= 0


def test_an_archive_tells_which_image_it_holds() -> None:
    ref = "numaserve.local/serving:0123456789ab"
    assert images.reference_of(images.archive_of(ref)) == ref


def test_all_images_are_built_unless_some_are_named() -> None:
    assert [spec.name for spec in images.chosen([])] == ["serving", "operator"]
    assert [spec.name for spec in images.chosen(["operator"])] == ["operator"]


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="no image is called gateway: there are serving, operator"):
        images.chosen(["gateway"])


def test_a_digest_is_that_of_the_exact_reference() -> None:
    assert image_digest(LISTING, "numaserve.local/serving:1234") == "sha256:aaaa"
    assert image_digest(LISTING, "numaserve.local/serving:123") is None


@pytest.mark.parametrize("spec", images.IMAGES, ids=lambda spec: spec.name)
def test_everything_a_dockerfile_copies_counts_for_the_name(spec: images.ImageSpec) -> None:
    lines = (REPOSITORY / spec.dockerfile).read_text().splitlines()
    copied = {line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line}
    assert copied == set(spec.inputs)


@pytest.mark.parametrize("spec", images.IMAGES, ids=lambda spec: spec.name)
def test_a_container_runs_as_nobody_in_particular(spec: images.ImageSpec) -> None:
    lines = (REPOSITORY / spec.dockerfile).read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 65532:65532"]
    assert any("--require-hashes" in line and "--no-cache-dir" in line for line in lines)
