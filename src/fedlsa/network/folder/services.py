"""Service files: systemd units that restart, and rules for nginx and Caddy that let sites' messages through alone."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import sys
from pathlib import Path

from . import readmes
from .config import Network
from .entries import host_kind

FLEET = "/v1/fleet/"  # the one path that sites need; control and runtime interfaces share Flower's port
LARGEST_BODY = "16m"
HARDENING = """NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths={folder}"""
SITE_PLACEHOLDERS = {
    "@FEDLSA@": "the absolute path of the fedlsa command on the site's machine (command -v fedlsa)",
    "@USER@": "the account that runs the site; the folder must belong to it",
    "@FOLDER@": "the absolute path of the site's folder, where the bundle was unpacked",
    "@DATA@": "the absolute path of the site's .parquet or .csv file",
}


def coordinator_files(network: Network) -> dict[str, str]:
    """Texts beside the keys, by path in the coordinator's folder, which has its final name already."""
    return {
        "systemd/fedlsa-coordinator.service": coordinator_unit(network),
        "proxy/nginx.conf": nginx(network),
        "proxy/Caddyfile": caddy(network),
        "README.md": readmes.coordinator(network),
    }


def coordinator_unit(network: Network) -> str:
    """The coordinator as a service of this machine; Flower's own files stay inside the folder."""
    folder, user = network.folder, "@USER@"
    with contextlib.suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    beside = Path(sys.executable).with_name("fedlsa")
    command = str(beside) if beside.is_file() else shutil.which("fedlsa")
    program = "@FEDLSA@" if command is None else str(Path(command).absolute())
    return f"""# systemd unit of the coordinator. Replace whatever stands between @ signs; check User and the paths.
# A network that lies in the folder for temporary files would be hidden by PrivateTmp: move it first.
[Unit]
Description=fedlsa coordinator
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
ExecStart={_word(program)} network serve {_word(str(folder))}
WorkingDirectory={_plain(str(folder))}
Environment={_word(f"NUMBA_CACHE_DIR={folder / 'cache'}")} "FLWR_TELEMETRY_ENABLED=0" "FLWR_DISABLE_UPDATE_CHECK=1"
Restart=always
RestartSec=5
UMask=0077
{HARDENING.format(folder=_word(str(folder)))}

[Install]
WantedBy=multi-user.target
"""


def site_unit(site: str) -> str:
    """A site as a service; what only the site knows stands between @ signs."""
    explained = "\n".join(f"#   {name:10} {meaning}" for name, meaning in SITE_PLACEHOLDERS.items())
    return f"""# systemd unit of the site {site}. Replace:
{explained}
[Unit]
Description=fedlsa site {site}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
User=@USER@
ExecStart="@FEDLSA@" network join "@FOLDER@" --data "@DATA@" --trust-coordinator --yes
WorkingDirectory=@FOLDER@
Environment="NUMBA_CACHE_DIR=@FOLDER@/cache" "FLWR_TELEMETRY_ENABLED=0" "FLWR_DISABLE_UPDATE_CHECK=1"
Restart=always
RestartSec=15
UMask=0077
{HARDENING.format(folder='"@FOLDER@"')}

[Install]
WantedBy=multi-user.target
"""


def _plain(text: str) -> str:
    """Text in a unit, where a percent sign would begin a specifier."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """One word of a command line or a list in a unit."""
    quoted = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def nginx(network: Network) -> str:
    """Only POST below /v1/fleet/ reaches the SuperLink, over TLS that is checked against the network's authority."""
    return f"""# nginx in front of the SuperLink. `fedlsa network serve` has such a gate built in; use this file
# instead, with `fedlsa network serve --no-gate`, where nginx already holds the address, or for its limits and logs.
# Include it inside the http block. nginx must be able to read server.key (its master process, as root, is).
server {{
    listen {network.port} ssl;
    server_name {network.host};
    ssl_certificate     "{network.certificate}";
    ssl_certificate_key "{network.key}";
    ssl_protocols TLSv1.2 TLSv1.3;
    client_max_body_size {LARGEST_BODY};

    # Flower has its control and runtime interfaces on the same port, without a log-in: nothing else may pass.
    location ^~ {FLEET} {{
        limit_except POST {{ deny all; }}
        if ($request_uri !~ "^{FLEET}[A-Za-z0-9/_-]+$") {{ return 403; }}  # as it was sent, before nginx tidies it
        proxy_pass https://127.0.0.1:{network.inner_port};
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate "{network.ca}";
        proxy_ssl_name localhost;
        proxy_ssl_server_name on;
        proxy_read_timeout 120s;
    }}

    location / {{ return 403; }}
}}
"""


def caddy(network: Network) -> str:
    """The same rule for Caddy (2.8 or newer)."""
    # clients that call an address by its number name no server, so Caddy is told which one is meant
    named = f"\n\tdefault_sni {network.host}" if host_kind(network.host) == "ip" else ""
    return f"""# Caddy (2.8 or newer) in front of the SuperLink. `fedlsa network serve` has such a gate built in;
# use this file instead, with `fedlsa network serve --no-gate`, where Caddy already holds the address.
# Caddy must be able to read server.key.
{{
	auto_https off{named}
}}

https://{_bracketed(network.host)}:{network.port} {{
	tls "{network.certificate}" "{network.key}"
	request_body {{
		max_size 16MB
	}}

	# Flower has its control and runtime interfaces on the same port, without a log-in: nothing else may pass.
	@fleet {{
		method POST
		path {FLEET}*
	}}
	handle @fleet {{
		reverse_proxy https://127.0.0.1:{network.inner_port} {{
			transport http {{
				tls_trust_pool file "{network.ca}"
				tls_server_name localhost
			}}
		}}
	}}
	handle {{
		respond 403
	}}
}}
"""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
