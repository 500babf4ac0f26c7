"""What is seen of a run: a live table on a terminal, lines elsewhere, all of it from the run's events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .runs import Run

SHOWN_ROUNDS = 12  # in the live table
HEADS = ("round", "sites", "missing", "drift", "estimated error", "up", "down", "seconds")


def follow(run: Run, say: Callable[[str], None] = print) -> None:
    """Show a run until it is over; Ctrl-C ends the showing alone."""
    try:
        if sys.stdout.isatty():
            _show_live(run)
        else:
            for new in run.follow():
                for event in new:
                    say(line(event))
    except KeyboardInterrupt:
        say(f"{run.name} goes on; fedlsa network status shows it, fedlsa network stop ends it")
        return
    for text in standing(run):
        say(text)


def _show_live(run: Run) -> None:
    from rich.live import Live

    events: list[dict[str, Any]] = []
    with Live(table(run.name, events), refresh_per_second=4) as live:
        for new in run.follow():
            events += new
            live.update(table(run.name, events))


def table(name: str, events: list[dict[str, Any]]) -> Any:
    """The last rounds, and under them the last word that was said."""
    from rich.table import Table
    from rich.text import Text

    rounds = [e for e in events if e["event"] == "round"]
    words = [e for e in events if e["event"] != "round"]
    planned = next((e["rounds"] for e in reversed(events) if e["event"] == "planned"), None)
    done = rounds[-1]["averages"] if rounds else 0
    caption = line(words[-1]) if words else "waiting for the coordinator"
    out = Table(title=Text(f"{name}: {done} of {planned or '?'} rounds"), caption=Text(caption))
    for head in HEADS:
        out.add_column(head, justify="right")
    for event in rounds[-SHOWN_ROUNDS:]:
        out.add_row(*_cells(event))
    return out


def _cells(event: dict[str, Any]) -> tuple[str, ...]:
    error = "-" if event["error"] is None else f"{event['error']:.2e}"
    return (
        str(event["averages"]) if event["averaged"] else "in vain",
        f"{len(event['sites'])} of {event['present']}",
        ", ".join(event["missing"]) or "-",
        f"{event['drift']:.3e}",
        error,
        amount(event["up"]),
        amount(event["down"]),
        f"{event['seconds']:.1f}",
    )


def line(event: dict[str, Any]) -> str:
    """An event in a line."""
    if event["event"] != "round":
        site = f"{event['site']}: " if "site" in event else ""
        if event["event"] == "resumed":
            return f"taken up again after {event['averages']} rounds"
        return f"{event['event']}: {site}{event.get('text', '')}"
    done, sites, missing, drift, error, up, down, seconds = _cells(event)
    head = f"round {done}" if event["averaged"] else f"a round in vain ({event['round']})"
    gone = f", gone: {', '.join(event['gone'])}" if event["gone"] else ""
    lost = f", missing: {missing}" if event["missing"] else ""
    return f"{head}: {sites} sites{lost}{gone}, drift {drift}, error {error}, up {up}, down {down}, {seconds} s"


def standing(run: Run) -> list[str]:
    """Where a run stands: its last words, its last round, its end."""
    events = [event for _, event in run.events()]
    out = [f"{run.name}: {'over' if run.over else 'stopping' if run.stopping else 'not over'}"]
    for kind in ("planned", "round"):
        last = [e for e in events if e["event"] == kind]
        out += [line(last[-1])] if last else []
        if kind == "round" and last:
            for site, (up, down) in last[-1].get("moved", {}).items():
                asked = "missing" if site in last[-1]["missing"] else "not asked"
                here = "answered" if site in last[-1]["sites"] else asked
                out.append(f"  {site}: {here}, up {amount(up)}, down {amount(down)}")
    if events and events[-1]["event"] not in ("planned", "round"):
        out.append(line(events[-1]))
    return out


def summary(result: dict[str, Any]) -> list[str]:
    """A result in lines: coefficients on the original scale, rounds, messages and bytes per site."""
    out = [f"{result['experiment']}: {result['over']}"]
    if "names" not in result:
        return out
    width = max(11, *(len(n) for n in result["names"]))
    columns = {"estimate": result["coefficients"]}
    if "one_shot" in result:
        columns["one shot"] = result["one_shot"]
    out.append(f"{'coefficient':<{width}}" + "".join(f"  {head:>14}" for head in columns))
    for name, *values in zip(result["names"], *columns.values(), strict=True):
        out.append(f"{name:<{width}}" + "".join(f"  {value:>14.8g}" for value in values))
    if "one_shot" in result:
        out.append("one shot: the solution of the averaged moments, which all sites shared")
    out.append(
        f"{result['averages']} rounds averaged, {result['rounds_opened']} opened; |sum of xi| {result['sum_of_xi']:.1e}"
    )
    for site, (down, down_bytes, up, up_bytes) in result["traffic"].items():
        refused = result.get("refused", {}).get(site, 0)
        more = f", {refused} refused" if refused else ""
        out.append(f"{site}: {up} messages up ({amount(up_bytes)}), {down} down ({amount(down_bytes)}){more}")
    if "privacy" in result:
        out.append(f"privacy of each site: {result['privacy']}")
    return out


def amount(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
