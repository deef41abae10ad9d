"""Certificates: who they name, who issued them, who may read the keys."""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from localcluster import kubeconfig
from localcluster.certs import Authority


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_kubelet_is_a_member_of_system_nodes(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("kubelet", "system:node:node-a", ("system:nodes",))
    subject = load(pair.cert).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:node-a"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"


def test_every_certificate_is_signed_by_the_one_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("admin", "admin")
    load(pair.cert).verify_directly_issued_by(load(authority.ca.cert))


def test_a_server_certificate_names_its_addresses_and_hosts(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("apiserver", "kube-apiserver", hosts=("10.200.0.1", "localhost"))
    names = load(pair.cert).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.200.0.1")]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_a_certificate_is_kept_when_asked_for_again(tmp_path: Path) -> None:
    first = Authority(tmp_path).issue("admin", "admin").cert.read_bytes()
    assert Authority(tmp_path).issue("admin", "admin").cert.read_bytes() == first


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keys = [authority.ca.key, authority.issue("admin", "admin").key, authority.service_account_keys().key]
    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600] * 3


def test_a_kubeconfig_carries_its_certificates_and_is_private(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certs")
    file = kubeconfig.write(tmp_path / "k", "https://127.0.0.1:1", authority, authority.issue("admin", "admin"))
    document = yaml.safe_load(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert set(document["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
