"""The pages for the two roles: the coordinator's README, and the one in a site's bundle."""

from __future__ import annotations

import shlex
from importlib.metadata import version

from ...fit import Regression
from .config import Network


def coordinator(network: Network) -> str:
    """What the coordinator does, step by step."""
    folder = shlex.quote(str(network.folder))
    listed = "\n".join(f"| {c} | {site} | bundles/{site}.zip |" for c, site in enumerate(network.sites))
    return f"""# A fedlsa network: the coordinator's folder

Made by fedlsa {version("fedlsa")}. Sites reach the coordinator at `{network.host}`, port {network.port} (TCP, TLS).
{_task(network)}

Two roles. The **coordinator** owns this folder, runs the server and starts runs. A **site** has data;
it gets one bundle from you and runs one command. You can compute its rows from its replies, so it must trust you.
docs/network.md says who sees what, and what is promised.

| agent | site | bundle |
|---|---|---|
{listed}

## Step by step
1. Install: `pip install 'fedlsa[flower]'`, the same version here and at every site.
2. Let port {network.port} through the firewall, and no other: port {network.inner_port} is Flower's own, bound to
   127.0.0.1.
3. Send each site its bundle, and no other's. **A bundle holds the site's private key**: whoever has it can pose as
   that site. Hand it over in person or over an encrypted channel that you both trust (scp, encrypted mail), never
   through an open share. Then delete your copy in `bundles/`; a lost one is replaced by a new key (below).
4. `fedlsa network serve {folder}` starts the coordinator. To have it started with the machine and after every
   failure: check the paths in `systemd/fedlsa-coordinator.service`, copy it to the folder of systemd's units, and
   `systemctl enable --now fedlsa-coordinator`.
5. When the sites have joined: `fedlsa network start {folder} --method scafflsa --epsilon 0.02` starts a run and
   shows it; `fedlsa network status {folder}`, `stop`, and `result --out result.json` do what they say.

`serve` has a gate built in: it answers POST below /v1/fleet/, which is what sites need, and refuses the rest,
because Flower has its control interface on the same port without a log-in. Where a proxy must hold the address
instead, use `serve --no-gate` with `proxy/nginx.conf` or `proxy/Caddyfile`; never expose port {network.inner_port}
itself.

## What lies here
| file | what it is | who may have it |
|---|---|---|
| network.toml | sites, address, task | you |
| ca.pem | certificate of this network's own authority, ten years | everybody |
| ca.key | its private key: whoever has it can pose as the coordinator | you; may be kept offline between renewals |
| server.pem, server.key | the coordinator's certificate (825 days) and private key | you |
| superexec.secret | lets Flower's processes on this machine know each other | you |
| sites/ | public keys of sites | everybody |
| bundles/ | what sites are sent, private keys included | each site its own |
| revoked/ | public keys that are refused | everybody |
| runs/ | settings, checkpoints and events of runs | you |
| systemd/, proxy/ | service files | everybody |

The folder has mode 700 and secrets have mode 600; `serve` refuses secrets that others may read.

## From time to time
- **Rotate a site's key** (lost, or somebody may have seen it): `fedlsa network rotate-key {folder} SITE`, restart
  `serve`, send the new bundle; the site joins once with `--new-key` and keeps its state.
- **Remove a site**: `fedlsa network remove-site {folder} SITE`, restart `serve`. Runs that include it treat it as
  gone (`--policy` of `start` says how); later runs do not ask for it. **Add one**: `fedlsa network add-site
  {folder} NAME`.
- **Renew the certificate** before its 825 days are over: `fedlsa network renew {folder}`, restart `serve`. Sites
  need nothing new. After ten years, or if ca.key was seen, make a new network: every site needs a new bundle.
- **Back up** this folder, encrypted, while `serve` is stopped or from a snapshot. It holds every secret of the
  network.
- **Upgrade**: stop `serve` (a run goes on where it was), upgrade fedlsa here and at the sites, start again. A
  folder of a newer version is refused by an older program with one line.
- **Another host or port**: sites have the address in their bundles, so make a new network.
"""


def site(name: str, network: Network) -> str:
    """What a site does, step by step."""
    return f"""# A site of a fedlsa network: {name}

Made by fedlsa {version("fedlsa")}. The coordinator is at `{network.host}`, port {network.port} (TCP, TLS).
{_task(network)}

**site.key is your site's private key.** Whoever has it can pose as your site. It must not leave this machine: keep
mode 600, delete the bundle once it is unpacked, and tell the coordinator at once if somebody may have seen it.

## Step by step
1. Install: `pip install 'fedlsa[flower]'`, the version that the coordinator has.
2. `fedlsa network join {name}.zip --data FILE.parquet --trust-coordinator` (or .csv, or `--loader
   package.module:function`). It unpacks the bundle to the folder `{name}/`, checks your data, says what will leave your
   site, asks, and joins. Your machine opens connections to the coordinator; it need not be reachable from outside.
3. To have it started with the machine: fill in what stands between @ signs in `fedlsa-site.service`, copy it to the
   folder of systemd's units, and `systemctl enable --now fedlsa-site`. It asks nothing (`--yes`).

What leaves: d numbers per round; at joining, three numbers for planning and sums for standardisation. With
`--share-moments`, averages of products of columns leave too. `join` names each before it begins.

**The coordinator can read your rows.** It chooses where the local steps start and how many there are, and from the
replies to single steps it can compute your rows one by one. `--trust-coordinator` states that it may: join only if so.

## From time to time
- **A new key** from the coordinator: `fedlsa network join {name}.zip --new-key --data FILE
  --trust-coordinator`. Your state stays.
- **Back up** the folder `{name}/`, encrypted. `state/` holds your control variate: losing it costs accuracy for
  some rounds.
- **Leave**: stop the service and tell the coordinator.
- **Upgrade**: when the coordinator does. Stop, upgrade, start.

Files: site.toml (name, address, task), site.key (private), ca.pem (by which you know the coordinator),
fedlsa-site.service, README.md.
"""


def _task(network: Network) -> str:
    task = network.task
    if isinstance(task, Regression):
        by = "all other columns" if task.features is None else ", ".join(f"`{n}`" for n in task.features)
        return f"The task: a linear model of the column `{task.target}` by {by}."
    return f"The task: the value function of the logged policy, discount {task.discount:g}, trace {task.trace:g}."
