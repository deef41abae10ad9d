"""One certificate authority and the certificates of every component, made with `cryptography`."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM files."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates into one folder; existing ones are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.ca = Pair(folder / "ca.crt", folder / "ca.key")
        if not self.ca.cert.exists():
            self._make_ca()

    def issue(self, name: str, subject: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> Pair:
        """A certificate usable by client and server. ``hosts`` are addresses or names it may serve as."""
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        if pair.cert.exists():
            return pair
        ca_key = serialization.load_pem_private_key(self.ca.key.read_bytes(), None)
        ca_cert = x509.load_pem_x509_certificate(self.ca.cert.read_bytes())
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)  # noqa: S101 -- we wrote it
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(subject, groups), ca_cert.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        _write(pair, builder.sign(ca_key, hashes.SHA256()), key)
        return pair

    def service_account_keys(self) -> Pair:
        """RSA key pair that signs service account tokens."""
        pair = Pair(self.folder / "sa.pub", self.folder / "sa.key")
        if not pair.key.exists():
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            pair.cert.write_bytes(public)
            _write_key(pair.key, key)
        return pair

    def _make_ca(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("numaserve local cluster", ())
        builder = _builder(name, name, key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
        _write(self.ca, builder.sign(key, hashes.SHA256()), key)


def _name(common: str, organisations: tuple[str, ...]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organisations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _write(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
