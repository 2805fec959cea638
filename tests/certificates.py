"""Certificates for tests of TLS, made by the openssl command: authorities, servers, clients, dates and keys of any kind."""

import pathlib
import subprocess

HOSTS = "subjectAltName=IP:127.0.0.1,DNS:localhost"


def openssl(*arguments, folder=None):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """Signs certificates into a folder: NAME.pem, NAME.key, and both in NAME.both.pem; its own are ca.pem and ca.key."""

    def __init__(self, folder, name="ca"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.name = name
        self.file = self.folder / f"{name}.pem"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl(
            "req", "-x509", *curve, "-days", "30", "-subj", f"/CN=test {name}",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", folder=self.folder,
        )  # fmt: skip

    def sign(self, name, key="ec", start=None, end=None, extension=HOSTS):
        """`start`, `end`: YYMMDDHHMMSSZ; otherwise valid for a month from now. Gives the paths of certificate and key."""
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if key == "ec" else ["-newkey", key]
        openssl(
            "req", *kind, "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr", folder=self.folder
        )
        (self.folder / f"{name}.ext").write_text(extension + "\n")
        if start is None and end is None:
            openssl(
                "x509", "-req", "-in", f"{name}.csr", "-CA", self.file.name, "-CAkey", f"{self.name}.key", "-CAcreateserial",
                "-days", "30", "-extfile", f"{name}.ext", "-out", f"{name}.pem", folder=self.folder,
            )  # fmt: skip
        else:
            self._sign_dated(name, start or "20200101000000Z", end or "20900101000000Z")
        certificate, secret = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        secret.chmod(0o600)
        both = self.folder / f"{name}.both.pem"
        both.write_text(certificate.read_text() + secret.read_text())
        both.chmod(0o600)
        return certificate, secret

    def _sign_dated(self, name, start, end):
        # Only `openssl ca` takes dates.
        (self.folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=it\n[it]\ndatabase=index.txt\nrand_serial=yes\nnew_certs_dir=.\ndefault_md=sha256\npolicy=any\n"
            "unique_subject=no\n[any]\ncommonName=supplied\n"
        )
        (self.folder / "index.txt").touch()
        openssl(
            "ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", self.file.name, "-keyfile", f"{self.name}.key",
            "-in", f"{name}.csr", "-startdate", start, "-enddate", end, "-extfile", f"{name}.ext", "-out", f"{name}.pem",
            folder=self.folder,
        )  # fmt: skip
