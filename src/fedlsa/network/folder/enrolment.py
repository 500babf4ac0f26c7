"""How a site comes into a network: it makes its keys and a request, a person approves, it installs its certificate.

Private keys are made where they are used and never leave. Of a request nothing is taken over but the two public keys.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import io
import shlex
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from string import Template

from ... import checks, files
from ...errors import ArgumentError, FedLSAError, NetworkError
from ...files import reason
from ...fitting import Regression
from ...fitting.tasks import Task
from ...installation import __version__
from .. import audit, disk
from ..protocol.records import printable
from ..site import policy
from . import certificates
from .certificates import SiteIdentity
from .config import Network, SiteFolder

# The bundle that a site is sent: a zip of four files with fixed names, none of them secret.
#
# Three are taken over, and they are data. The fourth is for people. The site's own program writes README, service file
# and policy: whoever sends a bundle can neither have commands started nor loosen a policy.

UNPACKED = ("site.toml", "ca.pem", "signing.pem")
MEMBERS = (*UNPACKED, "README.md")
MAX_BYTES, MAX_MEMBER_BYTES = 2**20, 2**18  # thousands of times what a bundle needs
FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same content


def pack_bundle(content: Mapping[str, bytes]) -> bytes:
    """The bytes of a bundle."""
    if set(content) != set(MEMBERS):
        raise NetworkError(f"a bundle must hold {', '.join(MEMBERS)}; got {', '.join(sorted(content))}")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in MEMBERS:
            entry = zipfile.ZipInfo(name, FIXED_DATE)
            entry.create_system = 3  # Unix: the mode below counts
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, content[name])
    return out.getvalue()


def read_bundle(path: Path) -> dict[str, bytes]:
    """The files of a bundle, by name, once each has been checked; nothing is written.

    Refused are names that are not ours (so none can point outside the folder), missing or repeated ones, links,
    encryption, and sizes that no bundle has.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise NetworkError(f"the bundle {path} is not a file")
        if info.st_size > MAX_BYTES:
            raise NetworkError(f"the bundle {path} must have at most {MAX_BYTES} bytes; got {info.st_size}")
        with zipfile.ZipFile(path) as file:
            content = _checked(file, path)
    except FileNotFoundError:
        raise NetworkError(f"there is no bundle {path}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise NetworkError(f"{path} is not a bundle, or is damaged: {reason(error)}") from error
    except OSError as error:
        raise NetworkError(f"cannot read the bundle {path}: {reason(error)}") from error
    return content


def _checked(file: zipfile.ZipFile, path: Path) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    for entry in file.infolist():
        name, mode = entry.filename, entry.external_attr >> 16
        if name not in MEMBERS:
            raise NetworkError(f"the bundle {path} holds {name[:80]!r}, which no bundle does; nothing was unpacked")
        if name in out:
            raise NetworkError(f"the bundle {path} holds {name!r} twice; nothing was unpacked")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):  # 0: the kind was not written down
            raise NetworkError(f"the bundle {path} holds {name!r} as a link or a folder; nothing was unpacked")
        if entry.flag_bits & 1:
            raise NetworkError(f"the bundle {path} is encrypted; decrypt it first")
        with file.open(entry) as stream:
            content = stream.read(MAX_MEMBER_BYTES + 1)  # whatever size the header claims
        if len(content) > MAX_MEMBER_BYTES:
            raise NetworkError(f"{name} in the bundle {path} must have at most {MAX_MEMBER_BYTES} bytes; got more")
        out[name] = content
    missing = [name for name in MEMBERS if name not in out]
    if missing:
        raise NetworkError(f"the bundle {path} lacks {', '.join(missing)}")
    return out


def check_same(path: Path, content: Mapping[str, bytes], into: Path) -> None:
    """Refuse to unpack a bundle over a folder that is not this bundle's."""
    if not into.is_dir() or not (into / "site.toml").is_file():
        raise NetworkError(f"{into} exists and is not a site's folder; --folder names another one")
    if any(_bytes(into / name) != content[name] for name in UNPACKED):
        raise NetworkError(f"{path} is for another site, network or task than {into}; --folder names another folder")


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


# Texts for people and service managers, from templates/: READMEs of both roles, systemd units.

COORDINATOR_PAGES = {
    "README.md": "coordinator.md",
    "systemd/fedlsa-coordinator.service": "coordinator.service",
}  # path in the coordinator's folder: template
SITE_PAGES = {"README.md": "site.md", "fedlsa-site.service": "site.service"}


class _Page(Template):
    delimiter = "%"  # shells have uses of their own for the dollar


def render(template: str, of: Network | SiteFolder) -> str:
    """A text for a folder, which has its final name already."""
    from .certificates import grouped

    folder = str(of.folder)
    values = {name: str(getattr(of, name, "")) for name in ("host", "port", "page_port", "name")}
    values |= {"version": __version__, "task": _task(of.task), "folder": shlex.quote(folder)}
    values |= {"network": grouped(of.id if isinstance(of, Network) else of.network)}
    names = of.sites if isinstance(of, Network) else ()
    values |= {"sites": "\n".join(f"| {c} | {name} | bundles/{name}.zip |" for c, name in enumerate(names))}
    if template.endswith(".service"):
        beside = Path(sys.executable).with_name("fedlsa")
        command = str(beside) if beside.is_file() else shutil.which("fedlsa")
        program = "@FEDLSA@" if command is None else str(Path(command).absolute())
        values |= {"program": _word(program), "folder": _word(folder), "working_directory": _plain(folder)}
        values |= {"cache": _word(f"NUMBA_CACHE_DIR={of.folder / 'cache'}"), "user": "@USER@"}
        with contextlib.suppress(OSError, KeyError, ImportError):
            values["user"] = getpass.getuser()
    text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    return _Page(text).substitute(values)


def _plain(text: str) -> str:
    """Text in a unit, where a percent sign would begin a specifier."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """One word of a command line or a list in a unit."""
    quoted = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _task(task: Task) -> str:
    if isinstance(task, Regression):
        if task.formula is not None:
            return f"The task: the linear model `{printable(task.formula)}`."
        by = "all other columns" if task.columns is None else ", ".join(f"`{printable(n)}`" for n in task.columns)
        return f"The task: a linear model of the column `{printable(task.target)}` by {by}."
    return f"The task: the value function of the logged policy, discount {task.discount:g}, trace {task.trace:g}."


KEYS = "site.key", "mask.key"
NEXT = "next"  # folder of new keys whose certificate has not come yet


def request(bundle: Path | str, folder: Path | str | None = None, *, new_key: bool = False) -> SiteFolder:
    """Unpack a bundle, make the site's keys, and write its request, NAME.csr. All at once or nothing.

    bundle : or the site's folder, to ask again; folder : by default named as the bundle, beside it
    new_key : new keys; the old ones are used until the new certificate is installed. State, policy and ledger stay.
    """
    path = checks.path("bundle", bundle)
    target = path if path.is_dir() else path.with_suffix("") if folder is None else checks.path("folder", folder)
    if not path.is_dir():
        content = read_bundle(path)
        site = SiteFolder.from_bundle(content, target.absolute(), path)
        if disk.is_new(target):
            _unpack(content, site)
        else:
            check_same(path, content, target)
    site = SiteFolder.load(target)
    if new_key and not (target / NEXT).exists():
        with disk.new_folder(target / NEXT) as part:
            _make_keys(part)
    _write_request(site)
    return site


def _unpack(content: Mapping[str, bytes], site: SiteFolder) -> None:
    """A new folder: what the bundle says, and the site's own keys, policy, service file and README."""
    texts = {name: render(template, site) for name, template in SITE_PAGES.items()}
    texts["policy.toml"] = policy.template(site.task)
    with disk.new_folder(site.folder) as part:
        for name in UNPACKED:
            disk.create(part / name, content[name], secret=False)
        for name, text in texts.items():
            disk.create(part / name, text.encode(), secret=False)
        _make_keys(part)


def _make_keys(folder: Path) -> None:
    for name, content in zip(KEYS, (certificates.new_key(), certificates.new_mask_key()), strict=True):
        disk.create(folder / name, content, secret=True)


def _keys(site: SiteFolder) -> Path:
    """The folder of the newest keys."""
    return site.folder / NEXT if (site.folder / NEXT).exists() else site.folder


def _read_keys(folder: Path) -> tuple[bytes, bytes]:
    key, mask = (disk.check_secret(folder / name, "the site's key").read_bytes() for name in KEYS)
    return key, mask


def _write_request(site: SiteFolder) -> None:
    """A request for the newest keys; one that is there already stays as it is."""
    keys = _read_keys(_keys(site))
    try:
        certificates.check_own(certificates.identity(site.request.read_bytes()), *keys)
    except (OSError, FedLSAError):
        content = certificates.request(site.name, site.network, *keys)
        files.write(site.request, content, "the file")


def read_request(network: Network, path: Path | str) -> SiteIdentity:
    """Who asks: a request of one of the network's sites, properly signed. Whether it is theirs a person must know."""
    file = checks.path("request", path)
    asked = certificates.identity(_small_file(file, "request"))
    checks.choice("the site's name in the request", asked.name, network.sites)
    if asked.network != network.id:
        raise NetworkError(
            f"{file} is a request to network {asked.network}; this is {network.id}. "
            "Was the bundle exchanged on its way? Send it again"
        )
    return asked


def _small_file(path: Path, what: str) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NetworkError(f"the {what} {path} is not a file")
        with open(path, "rb") as file:
            content = file.read(certificates.MAX_BYTES + 1)
    except OSError as error:
        raise NetworkError(f"cannot read the {what} {path}: {reason(error)}") from None
    if len(content) > certificates.MAX_BYTES:
        raise NetworkError(f"the {what} {path} must have at most {certificates.MAX_BYTES} bytes; got more")
    return content


def approve(folder: Path | str, path: Path | str, fingerprint: str, *, renew: bool = False) -> Path:
    """Give a site a certificate for the keys in its request; the file to be sent back, which counts from now on.

    fingerprint : as the site reads it to you; renew : replace the certificate that the site has
    """
    network = Network.load(folder)
    asked = read_request(network, path)
    given = "".join(str(fingerprint).lower().replace(":", " ").replace("-", " ").split())
    if given != asked.fingerprint.replace(" ", ""):
        raise ArgumentError(  # what it should be is not said here, lest it be copied
            f"fingerprint must be that of the request; got {checks.show(fingerprint)}. "
            f"If {asked.name} read it to you like this, the request is not the site's: do not approve it"
        )
    target = network.site_certificate(asked.name)
    if target.exists() and not renew:
        raise NetworkError(f"{asked.name} has a certificate already, {target}; --renew replaces it")
    _refuse_known_keys(network, asked)
    ca_key = disk.check_secret(network.ca_key, "the authority's key").read_bytes()
    content = certificates.certify_site(network.ca.read_bytes(), ca_key, asked)
    put_on_record(network, asked.name, "replaced")
    audit.note(network.folder, "approved", site=asked.name, text=asked.fingerprint)
    files.write(target, content, "the file")
    return target


def _refuse_known_keys(network: Network, asked: SiteIdentity) -> None:
    """Keys that were revoked never come back, and no two sites share one."""
    others = [network.site_certificate(name) for name in network.sites if name != asked.name]
    for file in (*sorted(network.revoked.glob("*-revoked.pem")), *(p for p in others if p.exists())):
        try:
            known = certificates.identity(_small_file(file, "certificate"))
        except FedLSAError as error:
            raise NetworkError(f"cannot compare the request with {file}: {error}") from None
        if known.key == asked.key or known.mask == asked.mask:
            raise NetworkError(
                f"a key in the request of {asked.name} is that of {file}: the site must make new ones "
                "(fedlsa network request FOLDER --new-key)"
            )


def put_on_record(network: Network, name: str, why: str) -> None:
    """Copy a site's certificate, if it has one, to revoked/, under name, date and digest; why : revoked or replaced."""
    path = network.site_certificate(name)
    if path.exists():
        content = path.read_bytes()  # a damaged one is put on record as well
        digest = hashlib.sha256(content).hexdigest()[:16]
        audit.note(network.folder, why, site=name, text=f"the certificate with the digest {digest}")
        files.write(network.revoked / f"{name}-{datetime.now(UTC):%Y-%m-%d}-{digest}-{why}.pem", content, "the file")


def revoke(folder: Path | str, name: str) -> Network:
    """Take a site's certificate away; the coordinator refuses it at once, and its keys for ever."""
    network = Network.load(folder)
    checks.choice("site", name, network.sites)
    if not network.site_certificate(name).exists():
        raise NetworkError(f"{name} has no certificate that could be revoked")
    put_on_record(network, name, "revoked")
    network.site_certificate(name).unlink()
    return network


def install(folder: Path | str, path: Path | str) -> SiteFolder:
    """Put the certificate that the coordinator sent beside the site's keys, once it is known to be for them."""
    site, file = SiteFolder.load(folder), checks.path("certificate", path)
    content = _small_file(file, "certificate")
    found = certificates.check_site(content, site.ca.read_bytes(), site.network, site.name)
    keys = _read_keys(_keys(site))
    certificates.check_own(found, *keys)
    if _keys(site) != site.folder:
        for name, secret in zip(
            KEYS, keys, strict=True
        ):  # interrupted here, keys and certificate differ: install again
            files.write(site.folder / name, secret, "the file", mode=disk.SECRET)
    files.write(site.certificate, content, "the file")
    shutil.rmtree(site.folder / NEXT, ignore_errors=True)
    return site
