"""Credentials: files of one mounted Secret, nothing else. Never the environment, never a file of the image."""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import FetchError

TOKEN, ENDPOINT, REGION, CA = "token", "endpoint", "region", "ca.crt"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "accessKeyId", "secretAccessKey", "sessionToken"
USERNAME, PASSWORD, DOCKER_CONFIG = "username", "password", ".dockerconfigjson"
_FOREIGN = ("AWS_", "FSSPEC_", "HF_", "HUGGING", "ORAS_", "DOCKER_")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of the Secret as text; ``ca`` is the file of the authority to trust. Never shown by repr."""

    values: dict[str, str] = field(default_factory=dict, repr=False)
    ca: Path | None = None

    def get(self, key: str) -> str | None:
        """A key's value, or None when the Secret has no such key."""
        return self.values.get(key)

    def login(self, host: str) -> tuple[str, str] | None:
        """User name and password for a registry: the plain keys, else the entry of .dockerconfigjson."""
        user, password = self.get(USERNAME), self.get(PASSWORD)
        if user and password:
            return user, password
        config = self.get(DOCKER_CONFIG)
        return _docker_login(config, host) if config else None


def read_credentials(directory: Path | None, secret: str | None = None) -> Credentials:
    """Read a mounted Secret; ``secret`` is its name for messages. Raises FetchError when it has no keys.

    The pod mounts the Secret as optional, so that a missing one is told here by name instead of holding
    the pod in ContainerCreating without a word.
    """
    if directory is None:
        return Credentials()
    try:
        files = [p for p in directory.iterdir() if p.is_file() and not p.name.startswith("..")]
        values = {p.name: p.read_text().strip() for p in files}
    except FileNotFoundError:
        values = {}
    except (OSError, UnicodeDecodeError) as error:
        why = "a value is not text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise FetchError(
            Reason.SECRET_NOT_FOUND, f"Secret {secret or directory} of spec.sourceSecretRef cannot be read: {why}"
        ) from error
    if not values:
        raise FetchError(
            Reason.SECRET_NOT_FOUND,
            f"Secret {secret or directory} named in spec.sourceSecretRef does not exist in this namespace or is empty: "
            "create it with the keys its source needs (docs: sources)",
        )
    return Credentials(values, directory / CA if CA in values else None)


def forget_environment() -> None:
    """Take away what the libraries would read on their own: their variables, profiles, proxies and metadata services.

    Call it before they are imported: some read their variables only then.
    """
    for name in [n for n in os.environ if n.startswith(_FOREIGN) or n.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _docker_login(text: str, host: str) -> tuple[str, str] | None:
    try:
        entries = json.loads(text).get("auths", {})
        entry = next((v for k, v in entries.items() if _host_of(k) == host), None)
        if entry is None:
            return None
        if "auth" in entry:
            user, colon, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
            if not colon:
                raise ValueError("no colon")
            return user, password
        return str(entry["username"]), str(entry["password"])
    except (ValueError, KeyError, AttributeError, TypeError, binascii.Error) as error:
        raise FetchError(
            Reason.SOURCE_DENIED,
            f"{DOCKER_CONFIG} of the Secret is not a Docker configuration: create it with `kubectl create secret docker-registry`",
        ) from error


def _host_of(key: str) -> str:
    return key.removeprefix("https://").removeprefix("http://").partition("/")[0]
