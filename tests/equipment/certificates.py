"""Certificates for servers of tests, made by openssl: an authority, and certificates that it signed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    """`ca.pem` signed `NAME.pem`, whose key is `NAME.key`."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl, to make certificates")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority of a test",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 wants to see it
        )  # fmt: skip

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def vouch(self, name: str, host: str) -> tuple[Path, Path]:
        """A certificate for a host, as `DNS:name` or `IP:address`, and its key."""
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
        )  # fmt: skip
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={host}\n")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-out", f"{name}.pem", "-extfile", f"{name}.ext",
        )  # fmt: skip
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
