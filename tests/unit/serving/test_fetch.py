"""Fetching an artifact over HTTP and from folders: whole, verified, resumed, or one sentence and nothing left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from numaserve_api.conditions import Reason
from numaserve_api.manifest import MANIFEST_FILE, manifest_digest
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_to
from numaserve_serving.fetch.place import STAGING
from tests.unit.serving.fetching import (
    ZERO,
    Asked,
    Handler,
    dropping,
    hurried,
    listed,
    manifest,
    served,
    tree,
    write_artifact,
)

BIN = "openvino_model.bin"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """An artifact directory."""
    folder = tmp_path / "made"
    write_artifact(folder)
    return folder


def digest_of(folder: Path) -> str:
    return manifest_digest((folder / MANIFEST_FILE).read_bytes())


def refused(out: Path, digest: str, source: str, tries: int = 3) -> FetchError:
    """The refusal; ``out`` does not exist afterwards."""
    with pytest.raises(FetchError) as caught:
        fetch_to(out, digest, Origin(source), hurried(tries=tries))
    assert not out.exists()
    return caught.value


def test_an_artifact_comes_whole_and_nothing_else_does(tmp_path: Path, artifact: Path) -> None:
    (artifact / "config_deploy.yaml").write_text("version: 1")
    with served(artifact) as site:
        place = fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried())
        assert site.asked[0].path == MANIFEST_FILE
        assert "tokenizer.json" not in {asked.path for asked in site.asked}  # it is empty
    (artifact / "config_deploy.yaml").unlink()
    assert place == tmp_path / "out"
    assert tree(place) == tree(artifact)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "out"]


def test_a_folder_is_fetched_and_one_that_is_there_is_verified_and_kept(tmp_path: Path, artifact: Path) -> None:
    origin, digest = Origin(f"file://{artifact}"), digest_of(artifact)
    fetch_to(tmp_path / "out", digest, origin)
    before = (tmp_path / "out" / BIN).stat()
    for path in artifact.rglob("*.*"):
        path.unlink()
    fetch_to(tmp_path / "out", digest, origin)
    assert (tmp_path / "out" / BIN).stat() == before


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path, artifact: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(FetchError, match=r"is not empty \(notes.txt\)"):
        fetch_to(out, digest_of(artifact), Origin(f"file://{artifact}"))
    (out / "notes.txt").unlink()
    write_artifact(out, seed=2)
    with pytest.raises(FetchError, match="another artifact or a damaged one"):
        fetch_to(out, digest_of(artifact), Origin(f"file://{artifact}"))
    assert tree(out)[BIN] != tree(artifact)[BIN]


def test_another_manifest_is_refused_before_any_file_is_asked_for(tmp_path: Path, artifact: Path) -> None:
    with served(artifact) as site:
        error = refused(tmp_path / "out", ZERO, site.url)
        assert [asked.path for asked in site.asked] == [MANIFEST_FILE]
    assert error.reason is Reason.DIGEST_MISMATCH
    assert digest_of(artifact) in str(error)
    assert ZERO in str(error)


def test_a_login_page_in_place_of_the_manifest_is_named(tmp_path: Path) -> None:
    with served() as site:
        site.files[MANIFEST_FILE] = b"<!doctype html><title>Sign in</title>"
        assert "begins with b'<!doctype html>" in str(refused(tmp_path / "out", ZERO, site.url))


@pytest.mark.parametrize("cut", [1, 65_536, 299_999])
def test_a_file_cut_in_the_middle_is_resumed_where_it_ended(tmp_path: Path, artifact: Path, cut: int) -> None:
    waits: list[float] = []
    with served(artifact, answer=dropping(BIN, cut)) as site:
        fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried(waits))
        assert site.starts(BIN) == [None, cut]
    assert tree(tmp_path / "out") == tree(artifact)
    assert len(waits) == 1


def test_a_server_without_ranges_is_read_from_the_start_again(tmp_path: Path, artifact: Path) -> None:
    with served(artifact, ranges=False, answer=dropping(BIN, 100_000, 2)) as site:
        fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried())
        assert site.starts(BIN)[:2] == [None, 100_000]
    assert tree(tmp_path / "out") == tree(artifact)


def test_the_next_run_goes_on_where_the_last_one_gave_up(tmp_path: Path, artifact: Path) -> None:
    def dead(handler: Handler, asked: Asked) -> bool:
        if asked.path == BIN:
            handler.content(handler.site.files[BIN], asked.start, 100_000 if asked.start is None else 0)
        return asked.path == BIN

    with served(artifact, answer=dead) as site:
        error = refused(tmp_path / "out", digest_of(artifact), site.url)
        assert error.reason is Reason.SOURCE_UNREACHABLE
        assert "stopped after 100000 of 300000 bytes" in str(error)
        site.answer, site.asked = lambda *_: False, []
        fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried())
        assert site.starts(BIN) == [100_000]
        assert site.starts(MANIFEST_FILE) == []
    assert tree(tmp_path / "out") == tree(artifact)


def test_bytes_that_rotted_in_the_partial_file_are_fetched_again(tmp_path: Path, artifact: Path) -> None:
    staging = tmp_path / f".out{STAGING}"
    (staging / "parts").mkdir(parents=True)
    (staging / MANIFEST_FILE).write_bytes((artifact / MANIFEST_FILE).read_bytes())
    (staging / "parts" / BIN).write_bytes(b"\0" * 1000)
    with served(artifact) as site:
        fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried())
        assert site.starts(BIN) == [1000, None]
    assert tree(tmp_path / "out") == tree(artifact)


def test_what_is_left_of_another_artifact_is_not_mixed_in(tmp_path: Path, artifact: Path) -> None:
    staging = tmp_path / f".out{STAGING}"
    write_artifact(staging / "artifact", seed=3, sizes={"stale.bin": 10, BIN: 300_000})
    (staging / MANIFEST_FILE).write_bytes((staging / "artifact" / MANIFEST_FILE).read_bytes())
    fetch_to(tmp_path / "out", digest_of(artifact), Origin(f"file://{artifact}"))
    assert tree(tmp_path / "out") == tree(artifact)


def test_what_the_manifest_does_not_list_is_left_behind(tmp_path: Path, artifact: Path) -> None:
    staging = tmp_path / f".out{STAGING}"
    (staging / "artifact" / "samples").mkdir(parents=True)
    (staging / MANIFEST_FILE).write_bytes((artifact / MANIFEST_FILE).read_bytes())
    (staging / "artifact" / ".manifest.json.1").write_text("half")
    (staging / "artifact" / "samples" / "link").symlink_to("/etc")
    fetch_to(tmp_path / "out", digest_of(artifact), Origin(f"file://{artifact}"))
    assert tree(tmp_path / "out") == tree(artifact)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "has digest"),
        (lambda content: content + b"!", "holds more than the 300000 bytes"),
        (lambda content: content[:-1], "ends after 299999 bytes where manifest.json says 300000"),
        (lambda content: b"", "ends after 0 bytes"),
    ],
    ids=["wrong", "long", "short", "empty"],
)
def test_other_bytes_than_the_manifest_says_are_refused(
    tmp_path: Path, artifact: Path, change: object, sentence: str
) -> None:
    with served(artifact) as site:
        site.files[BIN] = change(site.files[BIN])  # type: ignore[operator]
        error = refused(tmp_path / "out", digest_of(artifact), site.url)
    assert error.reason is Reason.DIGEST_MISMATCH
    assert f"{BIN} of {site.url}" in str(error)
    assert sentence in str(error)
    part = tmp_path / f".out{STAGING}" / "parts" / BIN
    assert not part.exists() or part.stat().st_size < 300_000


def test_an_endless_file_is_stopped_at_its_size(tmp_path: Path, artifact: Path) -> None:
    def endless(handler: Handler, asked: Asked) -> bool:
        if asked.path != BIN:
            return False
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        try:
            while True:
                handler.wfile.write(b"\0" * 65_536)
        except OSError:
            return True

    with served(artifact, answer=endless) as site:
        assert "holds more than" in str(refused(tmp_path / "out", digest_of(artifact), site.url))


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (401, Reason.SOURCE_DENIED, "answers HTTP 401"),
        (403, Reason.SOURCE_DENIED, "spec.sourceSecretRef must hold credentials"),
        (404, Reason.ARTIFACT_MISSING, "manifest.json does not exist"),
        (410, Reason.ARTIFACT_MISSING, "does not exist"),
        (400, Reason.SOURCE_UNREACHABLE, "answers HTTP 400"),
    ],
)
def test_a_refusal_is_told_at_once(tmp_path: Path, status: int, reason: Reason, words: str) -> None:
    def no(handler: Handler, asked: Asked) -> bool:
        handler.status(status)
        return True

    with served(answer=no) as site:
        error = refused(tmp_path / "out", ZERO, site.url)
        assert len(site.asked) == 1
    assert error.reason is reason
    assert words in str(error)


def test_a_busy_server_is_asked_again_when_it_says_so(tmp_path: Path, artifact: Path) -> None:
    busy = [429, 503]

    def answer(handler: Handler, asked: Asked) -> bool:
        if asked.path == BIN and busy:
            handler.status(busy.pop(), Retry_After="17")
            return True
        return False

    waits: list[float] = []
    with served(artifact, answer=answer) as site:
        fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried(waits))
    assert waits == [17.0, 17.0]


def test_a_server_that_stays_busy_is_given_up_after_growing_waits(tmp_path: Path) -> None:
    def answer(handler: Handler, asked: Asked) -> bool:
        handler.status(500)
        return True

    waits: list[float] = []
    with served(answer=answer) as site:
        with pytest.raises(FetchError, match="answers HTTP 500") as caught:
            fetch_to(tmp_path / "out", ZERO, Origin(site.url), hurried(waits))
        assert len(site.asked) == 6
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert [round(wait / 2**i) for i, wait in enumerate(waits)] == [1] * 5


def test_a_connection_that_breaks_without_end_is_given_up(tmp_path: Path, artifact: Path) -> None:
    with served(artifact, answer=dropping(BIN, 10, 1000)) as site:
        with pytest.raises(FetchError, match="stopped after 80 of 300000"):
            fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried(total=8))
        assert len(site.starts(BIN)) == 8


def test_nobody_there_names_source_and_remedy(tmp_path: Path) -> None:
    with served() as site:
        url = site.url
    error = refused(tmp_path / "out", ZERO, url)
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert url in str(error)
    assert "check the host and the network policies" in str(error)


def test_a_range_of_other_bytes_is_not_taken(tmp_path: Path, artifact: Path) -> None:
    first = dropping(BIN, 1000)
    shifted = [True]

    def answer(handler: Handler, asked: Asked) -> bool:
        if asked.path == BIN and asked.start and shifted:
            shifted.clear()
            handler.content(handler.site.files[BIN], asked.start + 1)
            return True
        return first(handler, asked)

    with served(artifact, answer=answer) as site:
        fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url), hurried())
        assert site.starts(BIN) == [None, 1000, 1000]
    assert tree(tmp_path / "out") == tree(artifact)


def test_a_compressed_answer_is_refused(tmp_path: Path) -> None:
    def answer(handler: Handler, asked: Asked) -> bool:
        assert asked.headers["Accept-Encoding"] == "identity"
        handler.status(200, Content_Encoding="gzip")
        return True

    with served(answer=answer) as site:
        assert "Content-Encoding gzip" in str(refused(tmp_path / "out", ZERO, site.url))


def test_a_redirect_to_plain_http_elsewhere_is_refused_and_carries_no_token(tmp_path: Path) -> None:
    def answer(handler: Handler, asked: Asked) -> bool:
        handler.status(302, Location="http://models.invalid/a/manifest.json")
        return True

    with served(answer=answer) as site:
        error = refused(tmp_path / "out", ZERO, site.url)
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "leads to plain http at models.invalid" in str(error)


def test_the_token_goes_to_its_own_host_only(tmp_path: Path, artifact: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "token").write_text("s3cret\n")
    with served(artifact) as other:

        def answer(handler: Handler, asked: Asked) -> bool:
            handler.status(302, Location=other.url + asked.path)
            return True

        with served(answer=answer) as site:
            fetch_to(tmp_path / "out", digest_of(artifact), Origin(site.url, secret), hurried())
            assert all(asked.headers["Authorization"] == "Bearer s3cret" for asked in site.asked)
        assert not any("Authorization" in asked.headers for asked in other.asked)


@pytest.mark.parametrize(
    "path",
    ["../out.bin", "/etc/passwd", "a/../../b", "./a", "a//b", ".hidden", "a\\b", "a\x00b", "%2e%2e/a", "manifest.json"],
)
def test_a_manifest_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    raw = manifest([listed(path, b"x")])
    with served() as site:
        site.files[MANIFEST_FILE] = raw
        error = refused(tmp_path / "out", manifest_digest(raw), site.url)
        assert len(site.asked) == 1
    assert error.reason is Reason.ARTIFACT_INVALID


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b/c", "a/b"]], ids=str)
def test_a_manifest_whose_names_collide_is_refused(tmp_path: Path, paths: list[str]) -> None:
    raw = manifest([listed(path, b"x") for path in paths])
    with served() as site:
        site.files[MANIFEST_FILE] = raw
        assert refused(tmp_path / "out", manifest_digest(raw), site.url).reason is Reason.ARTIFACT_INVALID


def test_a_manifest_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numaserve_serving.fetch.staging.MAX_MANIFEST", 1000)
    with served() as site:
        site.files[MANIFEST_FILE] = b"{" * 1001
        assert "larger than 1000 B" in str(refused(tmp_path / "out", ZERO, site.url))


@pytest.mark.parametrize("kind", ["file", "folder", "pipe"])
def test_links_and_special_files_of_a_folder_are_not_read(tmp_path: Path, artifact: Path, kind: str) -> None:
    digest = digest_of(artifact)
    path = artifact / (BIN if kind != "folder" else "samples")
    path.rename(tmp_path / "elsewhere")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "elsewhere")
    error = refused(tmp_path / "out", digest, f"file://{artifact}")
    assert error.reason is Reason.ARTIFACT_INVALID
    assert str(path) in str(error)


@pytest.mark.parametrize("kind", ["symlink", "hard link"])
def test_a_link_planted_where_a_partial_file_goes_is_not_written_through(
    tmp_path: Path, artifact: Path, kind: str
) -> None:
    victim, parts = tmp_path / "victim", tmp_path / f".out{STAGING}" / "parts"
    victim.write_bytes(b"precious")
    parts.mkdir(parents=True)
    (parts.parent / MANIFEST_FILE).write_bytes((artifact / MANIFEST_FILE).read_bytes())
    (parts / BIN).symlink_to(victim) if kind == "symlink" else (parts / BIN).hardlink_to(victim)
    fetch_to(tmp_path / "out", digest_of(artifact), Origin(f"file://{artifact}"))
    assert victim.read_bytes() == b"precious"
    assert tree(tmp_path / "out") == tree(artifact)
    assert not (tmp_path / "out" / BIN).is_symlink()


def test_a_linked_folder_in_the_staging_directory_is_refused(tmp_path: Path, artifact: Path) -> None:
    parts = tmp_path / f".out{STAGING}" / "parts"
    parts.mkdir(parents=True)
    (parts.parent / MANIFEST_FILE).write_bytes((artifact / MANIFEST_FILE).read_bytes())
    (tmp_path / "elsewhere").mkdir()
    (parts / "samples").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in str(refused(tmp_path / "out", digest_of(artifact), f"file://{artifact}"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_first_failure_stops_the_other_files(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made", sizes={f"f{i}.bin": 1000 + i for i in range(40)})

    def answer(handler: Handler, asked: Asked) -> bool:
        if asked.path == "f39.bin":  # the largest goes first
            handler.status(403)
            return True
        return False

    with served(tmp_path / "made", answer=answer) as site:
        assert refused(tmp_path / "out", digest, site.url).reason is Reason.SOURCE_DENIED
        assert len(site.asked) < 20


def test_more_than_the_disk_has_is_refused_before_a_byte_is_fetched(tmp_path: Path) -> None:
    raw = manifest([{"path": "big.bin", "size": 2**60, "digest": ZERO}])
    with served() as site:
        site.files[MANIFEST_FILE] = raw
        error = refused(tmp_path / "out", manifest_digest(raw), site.url)
        assert len(site.asked) == 1
    assert error.reason is Reason.NO_SPACE
    assert "needs 1048576.0 TiB more" in str(error)
