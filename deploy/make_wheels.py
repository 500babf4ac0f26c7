"""Wheels of fedlsa and of all that its network needs, for machines without a network: `make wheels`.

They are downloaded for a Linux of a given processor and Python, which need not be this machine's. Beside them lie
requirements.txt, which pins every wheel by version and hash, SHA256SUMS and INSTALL.md.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRA = "network"
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")  # newest first
INSTALL = """# Install fedlsa[{extra}] without a network

{count} wheels for Python {python} on Linux, {machine}. Carry this folder over, then on the machine:

    sha256sum --check SHA256SUMS
    python{python} -m venv /opt/fedlsa
    /opt/fedlsa/bin/pip install --no-index --find-links . --require-hashes --requirement requirements.txt
    /opt/fedlsa/bin/fedlsa network --help

SHA256SUMS says that nothing was lost on the way, not that nobody exchanged a file: compare its own digest over the
telephone with whoever made it (`sha256sum SHA256SUMS`). The same folder builds the image (deploy/Containerfile).
"""


def described(wheel: Path) -> tuple[str, str]:
    """The name and version that a wheel gives itself."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        head = Parser().parsestr(archive.read(name).decode("utf-8"), headersonly=True)
    return re.sub(r"[-_.]+", "-", head["Name"]).lower(), head["Version"]


def write_lists(folder: Path, python: str, machine: str) -> list[str]:
    """requirements.txt, SHA256SUMS and INSTALL.md for the wheels of a folder; the lines of the first."""
    wheels = sorted(folder.glob("*.whl"))
    digests = {wheel: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    lines = []
    for wheel, digest in digests.items():
        name, version = described(wheel)
        wanted = f"fedlsa[{EXTRA}]" if name == "fedlsa" else name
        lines.append(f"{wanted}=={version} --hash=sha256:{digest}")
    (folder / "requirements.txt").write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "requirements.txt", *wheels)}
    (folder / "SHA256SUMS").write_text("".join(f"{d}  {n}\n" for n, d in sums.items()), encoding="utf-8")
    text = INSTALL.format(extra=EXTRA, count=len(wheels), python=python, machine=machine)
    (folder / "INSTALL.md").write_text(text, encoding="utf-8")
    return sorted(lines)


def main(folder: Path, python: str, machine: str) -> None:
    """Build our own wheel, download the others, write the lists; a folder from before is replaced."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(part), str(ROOT)], check=True)
    own = next(part.glob("fedlsa-*.whl"))
    platforms = [word for tag in GLIBC for word in ("--platform", f"{tag}_{machine}")]
    target = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *platforms]
    subprocess.run([*pip, "download", *target, "--dest", str(part), f"{own}[{EXTRA}]"], check=True)
    lines = write_lists(part, python, machine)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    print(
        f"{len(lines)} wheels, {size / 1e6:.0f} MB, for Python {python} on {machine}: {folder}; read INSTALL.md there"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "wheels")
    parser.add_argument("--python-version", default="3.12", help="of the machine that will install them")
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"))
    given = parser.parse_args()
    main(given.out, given.python_version, given.machine)
