"""An authority and certificates for tests of carriers, made here with any name and any dates."""

import datetime
from types import SimpleNamespace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates into a folder: NAME.pem and NAME.key."""

    def __init__(self, folder, name="authority"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.ca, self.name = folder / "ca.pem", _name(name)
        own = self._builder(self.name, self.key, -1, 30).add_extension(x509.BasicConstraints(True, 0), critical=True)
        self._write(self.ca, own)

    def _builder(self, subject, key, begins, ends):
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        dates = builder.not_valid_before(now + begins * DAY).not_valid_after(now + ends * DAY)
        return dates.serial_number(x509.random_serial_number())

    def _write(self, path, builder):
        path.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name, file=None, *, server=False, begins=-1, ends=30):
        """A key and a certificate; begins, ends : days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(_name(name), key, begins, ends)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        pem, secret = self.folder / f"{file or name}.pem", self.folder / f"{file or name}.key"
        self._write(pem, builder)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(*form))
        return SimpleNamespace(key=secret, certificate=pem, ca=self.ca)
