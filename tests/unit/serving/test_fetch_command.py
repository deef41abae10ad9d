"""`python3 -m numaserve_serving.fetch` as the pod runs it: its last line, its refusals, its signals, its disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from numaserve_api.manifest import MANIFEST_FILE
from numaserve_api.probe import StartupFailure
from numaserve_serving.fetch import progress
from numaserve_serving.fetch.cli import app
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_to
from numaserve_serving.fetch.place import STAGING
from numaserve_serving.refusal import EXIT_REFUSED
from tests.unit.serving.fetching import ZERO, Asked, Handler, served, tree, write_artifact

BIN = "openvino_model.bin"
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
from numaserve_serving.fetch.cli import app
app()
"""


def fetch(*words: object, program: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command; NUMASERVE_TERMINATION_LOG is told by the caller."""
    start = ["-c", program] if program else ["-m", "numaserve_serving.fetch"]
    return subprocess.run(
        [sys.executable, *start, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


def test_the_directory_is_printed_last(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made")
    words = ("--source", f"file://{tmp_path / 'made'}", "--hash", digest)
    done = fetch(*words, "--out", tmp_path / "out")
    assert done.stdout.splitlines()[-1] == str(tmp_path / "out")
    done = fetch(*words, "--cache", tmp_path / "cache", "--cache-limit", "1Gi")
    assert done.stdout.splitlines()[-1] == str(tmp_path / "cache" / digest.replace(":", "-"))
    assert tree(tmp_path / "cache" / digest.replace(":", "-")) == tree(tmp_path / "out")


def test_a_refusal_reaches_the_termination_log_in_the_servers_form(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    write_artifact(tmp_path / "made")
    done = fetch(
        "--source", f"file://{tmp_path / 'made'}", "--hash", ZERO, "--out", tmp_path / "out",
        NUMASERVE_TERMINATION_LOG=str(log),
    )  # fmt: skip
    assert done.returncode == EXIT_REFUSED
    assert done.stdout == ""
    failure = StartupFailure.model_validate(json.loads(log.read_text()))
    assert failure.reason == "DigestMismatch"
    assert ZERO in failure.message
    assert "Traceback" not in done.stderr


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    done = fetch(
        "--source", "s3://bucket/model", "--hash", ZERO, "--out", tmp_path / "out", "--credentials", tmp_path / "none",
        "--secret-name", "models-reader", NUMASERVE_TERMINATION_LOG=str(log),
    )  # fmt: skip
    assert done.returncode == EXIT_REFUSED
    failure = StartupFailure.model_validate(json.loads(log.read_text()))
    assert failure.reason == "SecretNotFound"
    assert "Secret models-reader" in failure.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hash", "sha256:1", "--out", "o"], "64 hexadecimal digits"),
        (["--hash", ZERO], "one of --out and --cache"),
        (["--hash", ZERO, "--out", "o", "--cache", "c"], "one of --out and --cache"),
        (["--hash", ZERO, "--cache", "c", "--cache-limit", "fifty"], "not a quantity"),
        (["--hash", ZERO, "--cache", "c", "--cache-limit", "0"], "above 0"),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("numaserve_serving.fetch.credentials.forget_environment", lambda: None)
    done = CliRunner().invoke(app, ["--source", "file:///m", *words])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_credentials_of_the_environment_are_never_sent(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made")
    files = tree(tmp_path / "made")

    def hub(handler: Handler, asked: Asked) -> bool:
        handler.content(files[asked.path.partition("/resolve/v1/")[2]], asked.start)
        return True

    secret = tmp_path / "secret"
    secret.mkdir()
    (tmp_path / "home" / ".cache" / "huggingface").mkdir(parents=True)
    (tmp_path / "home" / ".cache" / "huggingface" / "token").write_text("hf_of_the_machine")
    (tmp_path / "home" / ".netrc").write_text("machine 127.0.0.1 login me password pw\n")
    with served(answer=hub) as site:
        (secret / "endpoint").write_text(site.url.removesuffix("/a/"))
        done = fetch(
            "--source", "hf://team/encoder@v1", "--hash", digest, "--out", tmp_path / "out", "--credentials", secret,
            HF_TOKEN="hf_of_the_environment", HOME=str(tmp_path / "home"), HTTP_PROXY="http://127.0.0.1:1",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert site.asked
        assert not any("Authorization" in asked.headers for asked in site.asked)


def test_sigterm_ends_it_at_once_and_keeps_what_arrived(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made")
    begun, go = threading.Event(), threading.Event()

    def hold(handler: Handler, asked: Asked) -> bool:
        if asked.path == BIN:
            begun.set()
            go.wait(30)
        return False

    with served(tmp_path / "made", answer=hold) as site:
        process = subprocess.Popen(
            [sys.executable, "-m", "numaserve_serving.fetch", "--source", site.url, "--hash", digest, "--out", tmp_path / "out"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        try:
            assert begun.wait(60)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
        finally:
            go.set()
            process.kill()
            process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not (tmp_path / "out").exists()
    assert (tmp_path / f".out{STAGING}" / MANIFEST_FILE).exists()


@pytest.mark.parametrize("place", ["out", "cache"])
def test_a_disk_that_fills_is_one_sentence_and_the_next_run_goes_on(tmp_path: Path, place: str) -> None:
    digest = write_artifact(tmp_path / "made")
    log = tmp_path / "termination-log"
    with served(tmp_path / "made") as site:
        words = ("--source", site.url, "--hash", digest, f"--{place}", tmp_path / "place")
        done = fetch(*words, program=LIMITED, NUMASERVE_TERMINATION_LOG=str(log))
        assert done.returncode == EXIT_REFUSED, done.stderr
        failure = StartupFailure.model_validate(json.loads(log.read_text()))
        assert failure.reason == "NoSpace"
        assert f"is full while {BIN} is written" in failure.message
        assert not (tmp_path / "place" / (digest.replace(":", "-") if place == "cache" else MANIFEST_FILE)).exists()
        site.asked.clear()
        done = fetch(*words)
        assert done.returncode == 0, done.stderr
        assert site.starts(BIN) == [150_000]
    assert tree(Path(done.stdout.splitlines()[-1])) == tree(tmp_path / "made")


class TestMountPoint:
    """An emptyDir is a mount point: it cannot be renamed to, so files move in, manifest.json last."""

    @pytest.fixture(autouse=True)
    def _mounted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out = tmp_path / "mounted"
        self.out.mkdir()
        monkeypatch.setattr(Path, "is_mount", lambda path: path == self.out)

    def test_the_files_move_in_and_nothing_else_stays(self, tmp_path: Path) -> None:
        digest = write_artifact(tmp_path / "made")
        before = self.out.stat().st_ino
        fetch_to(self.out, digest, Origin(f"file://{tmp_path / 'made'}"))
        assert tree(self.out) == tree(tmp_path / "made")
        assert self.out.stat().st_ino == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "mounted"]

    def test_a_move_that_was_interrupted_is_finished_without_fetching(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digest = write_artifact(tmp_path / "made")
        rename, left = Path.rename, [2]

        def killed(path: Path, target: Path) -> Path:
            if STAGING in str(path) and self.out in target.parents and STAGING not in str(target):
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
            return rename(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", killed)
            with pytest.raises(KeyboardInterrupt):
                fetch_to(self.out, digest, Origin(f"file://{tmp_path / 'made'}"))
        assert not (self.out / MANIFEST_FILE).exists()
        files = tree(tmp_path / "made")
        with served() as site:
            fetch_to(self.out, digest, Origin(site.url))
            assert site.asked == []
        assert tree(self.out) == files

    def test_files_of_others_are_refused(self, tmp_path: Path) -> None:
        digest = write_artifact(tmp_path / "made")
        (self.out / "other").write_text("")
        with pytest.raises(FetchError, match="is not empty"):
            fetch_to(self.out, digest, Origin(f"file://{tmp_path / 'made'}"))


def test_progress_is_a_line_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    meter = progress.Meter(4096, "s3://models/m", clock=lambda: now[0])
    with caplog.at_level("INFO", "numaserve"):
        meter.found(1024)
        for now[0] in (4.9, 5.0, 5.1, 10.1):
            meter.arrived(512)
    assert [record.getMessage() for record in caplog.records] == [
        "fetched 2.0 KiB of 4.0 KiB (50 %) from s3://models/m, 205 B/s",
        "fetched 3.0 KiB of 4.0 KiB (75 %) from s3://models/m, 203 B/s",
    ]  # fmt: skip
