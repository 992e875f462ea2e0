"""Certificates for servers of tests."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


class Identity(NamedTuple):
    """A certificate that vouches for itself: it is its own authority."""

    certificate: Path
    """PEM."""
    key: Path
    """PEM, of mode 600."""


def identity(folder: Path, name: str = "follower", address: str = "127.0.0.1") -> Identity:
    """Make a certificate.

    Parameters
    ----------
    folder, name
        Where, and how the files begin.
    address
        Whom it is for.

    Returns
    -------
    Identity
        Good for an hour.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    for_address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    certificate = builder.add_extension(for_address, critical=False).sign(key, hashes.SHA256())
    made = Identity(folder / f"{name}.pem", folder / f"{name}.key")
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.touch(mode=0o600)
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made
