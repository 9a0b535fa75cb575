"""A throw-away authority and a certificate for loopback or for names, made once per test run."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM


def make_certificate(folder: Path) -> Path:
    """A certificate for `localhost` and 127.0.0.1 with its key and its authority, in one PEM file.

    Name the file in `ssl_verify_upstream_trusted_ca`, too.
    """
    authority, certificate = make_certificates(folder, ("localhost",))
    certificate.write_bytes(certificate.read_bytes() + authority.read_bytes())
    return certificate


def make_certificates(folder: Path, hosts: tuple[str, ...]) -> tuple[Path, Path]:
    """The authority, and the certificate for 127.0.0.1 and all hosts with its key. Strict clients
    (rustls) want two certificates, and an authority that may sign."""
    now = datetime.now(UTC)
    key_of_authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback upstream")])

    def begun(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
        )

    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(key_of_authority.public_key())
    authority = (
        begun(issuer, key_of_authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key_of_authority, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([*(x509.DNSName(host) for host in hosts), loopback])
    leaf = (
        begun(subject, key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key_of_authority, hashes.SHA256())
    )
    secret = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "authority.pem").write_bytes(authority.public_bytes(PEM))
    (folder / "server.pem").write_bytes(secret + leaf.public_bytes(PEM))
    return folder / "authority.pem", folder / "server.pem"


def server_context(pem: Path, *, http2: bool) -> ssl.SSLContext:
    """TLS as an upstream offers it; HTTP/2 by ALPN where wanted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return context


def client_context(authority: Path, *, http2: bool) -> ssl.SSLContext:
    """TLS as a client that trusts `authority` speaks it; with `http2`, it insists on HTTP/2."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"] if http2 else ["http/1.1"])
    return context
