"""The bundle that a site is sent: a zip of five files with fixed names; one of them is the site's private key."""

from __future__ import annotations

import io
import stat
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from ...errors import FedLSAWarning, NetworkError
from ...files import reason
from .. import disk

SECRETS = ("site.key",)
MEMBERS = ("site.toml", *SECRETS, "ca.pem", "fedlsa-site.service", "README.md")
MAX_BYTES, MAX_MEMBER_BYTES = 2**20, 2**18  # thousands of times what a bundle needs
FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same content


def pack(content: Mapping[str, bytes]) -> bytes:
    """The bytes of a bundle; modes travel with the files."""
    if set(content) != set(MEMBERS):
        raise NetworkError(f"a bundle must hold {', '.join(MEMBERS)}; got {', '.join(sorted(content))}")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in MEMBERS:
            entry = zipfile.ZipInfo(name, FIXED_DATE)
            entry.create_system = 3  # Unix: the mode below counts
            entry.external_attr = (stat.S_IFREG | (0o600 if name in SECRETS else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, content[name])
    return out.getvalue()


def read(path: Path) -> dict[str, bytes]:
    """The files of a bundle, by name, once each has been checked; nothing is written.

    Refused are names that are not ours (so none can point outside the folder), missing or repeated ones, links,
    encryption, sizes that no bundle has, and a key that would come out readable by others.
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
    if disk.CHECKED and info.st_mode & disk.OTHERS:
        warnings.warn(
            f"{path} holds a private key and others on this machine may read it (mode {info.st_mode & 0o777:o}): "
            "chmod 600 it, or delete it once it is unpacked",
            FedLSAWarning,
            stacklevel=3,
        )
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
        if name in SECRETS and (not mode or mode & disk.OTHERS):
            raise NetworkError(
                f"{name} in the bundle {path} must be closed to others (mode 600); got mode {mode & 0o777:o}. "
                "Was it packed again by hand? Ask the coordinator for a new key"
            )
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


def unpack(path: Path, content: Mapping[str, bytes], into: Path, *, new_key: bool) -> None:
    """Write the files of a bundle to a site's folder, all or none; the same bundle again changes nothing.

    new_key : take the key of a bundle for the same site of the same network; the site's state stays.
    """
    if disk.is_new(into):
        with disk.new_folder(into) as part:
            for name in MEMBERS:
                disk.create(part / name, content[name], secret=name in SECRETS)
        return
    if not into.is_dir() or not (into / "site.toml").is_file():
        raise NetworkError(f"{into} exists and is not a site's folder; --folder names another one")
    changed = [name for name in MEMBERS if _bytes(into / name) != content[name]]
    if "site.toml" in changed or "ca.pem" in changed:
        raise NetworkError(f"{path} is for another site, network or task than {into}; --folder names another folder")
    if "site.key" in changed and not new_key:
        raise NetworkError(f"{path} holds another key than {into}; --new-key takes it, when the coordinator rotated it")
    for name in changed:
        disk.replace(into / name, content[name], secret=name in SECRETS)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
