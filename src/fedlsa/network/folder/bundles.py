"""The bundle that a site is sent: a zip of four files with fixed names, none of them secret.

Three are taken over, and they are data. The fourth is for people. The site's own program writes README, service file
and policy: whoever sends a bundle can neither have commands started nor loosen a policy.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from ...errors import NetworkError
from ...files import reason

UNPACKED = ("site.toml", "ca.pem", "signing.pem")
MEMBERS = (*UNPACKED, "README.md")
MAX_BYTES, MAX_MEMBER_BYTES = 2**20, 2**18  # thousands of times what a bundle needs
FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same content


def pack(content: Mapping[str, bytes]) -> bytes:
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


def read(path: Path) -> dict[str, bytes]:
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
