"""Certificates for servers of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trustme

if TYPE_CHECKING:
    from pathlib import Path


class Identity(NamedTuple):
    """Files of PEM."""

    certificate: Path
    key: Path
    """Of mode 600."""
    authority: Path
    """Who signed it, and nothing else."""


def identity(folder: Path, name: str = "follower", address: str = "127.0.0.1") -> Identity:
    """Make a certificate, and an authority of its own.

    Parameters
    ----------
    folder, name
        Where, and how the files begin.
    address
        Whom it is for.

    Returns
    -------
    Identity
        Three files.
    """
    authority = trustme.CA()
    certificate = authority.issue_cert(address)
    made = Identity(*(folder / f"{name}{ending}" for ending in (".pem", ".key", "-authority.pem")))
    made.key.touch(mode=0o600)
    certificate.private_key_pem.write_to_path(made.key)
    certificate.cert_chain_pems[0].write_to_path(made.certificate)
    authority.cert_pem.write_to_path(made.authority)
    return made
