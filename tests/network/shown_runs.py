"""Files of runs and ledgers as the pages read them, for the tests of both."""

import json

from fedlsa.network.coordinator.runs import RunFolder

SITES = ("amsterdam", "berlin", "lisbon", "oslo")
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e\n"


def round_event(k, missing=(), error=None, **more):
    there = [s for s in SITES if s not in missing]
    moved = {s: [900 * k, 1200 * k] for s in SITES}
    out = {"time": 1e9 + k, "event": "round", "round": k, "averaged": True, "sites": there, "missing": list(missing)}
    out |= {"gone": [], "averages": k, "present": len(SITES), "size": 0.1, "error": error, "moved": moved}
    return out | {"up": 3600 * k, "down": 4800 * k, "seconds": 0.05} | more


def write_run(network, name="trial", events=(), terms=None, **files):
    folder = network.runs / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps({"method": "scafflsa", "epsilon": 0.02, "name": name}))
    run = RunFolder(folder)
    run.store.forget(name)
    run.write("terms.json", terms or {"plan": "a plan", "rate": 0.1, "epsilon": 0.02})
    add_events(run, *events)
    for file, content in files.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


def add_events(run, *events):
    with run.store.transaction():
        for event in events:
            run.store.add_event(run.name, event)


def fill_ledger(ledger, rounds=3, rho=0.01):
    ledger.enter("trial", "token", "describe", "the number of rows, columns and levels", "d", "00", numbers=1)
    for k in range(1, rounds + 1):
        more = {"numbers": 9, "round": k, "rho": rho, "unit": "site"}
        ledger.enter("trial", "token", "work", "a change of the model, masked", f"w{k}", f"{k:02}", **more)
    ledger.refuse(f"trial{HOSTILE}", "work", f"the policy of this site forbids it {HOSTILE}")
