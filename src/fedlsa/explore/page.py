"""The explorer's page, served from the user's machine: on loopback, or elsewhere with a token. It asks with its
settings as a query; answers come as lines of JSON. On a topic (curves, fit, simulate, map, plans) the newest wins.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import secrets
import signal
import threading
import time
import webbrowser
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

from .. import checks, pages
from ..errors import ArgumentError, FedLSAError
from ..files import as_bytes, reason
from ..pages.web_server import (
    HEADERS,
    JSON_KIND,
    JSON_LINES_KIND,
    KINDS,
    LOOPBACK,
    Page,
    PageRequest,
    QueryRoute,
    Shown,
)
from . import answers, take
from .answers import MAP_STEPS, Question
from .page_settings import (
    AXES,
    BESIDE,
    METHODS,
    OF_PROBLEM,
    PROBLEMS,
    SETTINGS,
    STARTS,
    PageSettings,
    column_name,
    fit_call,
    split_names,
)
from .pool import LONG_LANE, QUICK_LANE, Asking, Computation, Pool, Progress
from .scene_data import Curves, in_words, known_line, seeds_data
from .uploads import MAX_UPLOAD_BYTES, Sites, Uploads

TOGETHER = 0.1  # seconds within which answers are drawn together
CALM = 0.4  # seconds without a newer question before files and the next steps are made
REST = 0.8  # seconds more before long work begins, whose process a newer question would end
REDRAW = 0.2  # seconds between two signs of progress
ABOUT_REQUEST = ("page", "n", "files", "moved", "from", "name", "simulated")  # in the query beside settings
# scene.js brings styles of its own, and a page's icon is none
POLICY = HEADERS["Content-Security-Policy"].replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
POLICY = POLICY.replace("img-src 'self'", "img-src 'self' data:")
EXPLAINED = {
    "ring": "Least squares with two coefficients. Each site's own solution lies on a ring, and each sees one direction "
    "better than the other.",
    "garnet": "Random decision processes of 30 states; TD(0) with random features. Half of the agents live in one "
    "world, half in another; the perturbation makes each agent's world a little different.",
    "lakes": "Gymnasium's FrozenLake, a lake per agent, each slippery in its own way; TD(0) with one value per region.",
    "cartpoles": "Gymnasium's CartPole, a pole of its own length per agent; TD(0) on logs of 1000 steps.",
    "files": "A CSV or Parquet file per site, read on your machine. Local steps draw rows of the site at random; "
    "with more than 20 coefficients, or more rows than fit into memory, they take a site's means, which have no noise. "
    "For a value function the columns reward and terminated are needed too.",
}

Lines = Generator[bytes, None, None]


def serve(
    settings: PageSettings, files: Sequence[str] = (), host: str = LOOPBACK, port: int = 0, browser: bool = True
) -> None:
    """Serve the page until interrupted; port 0 takes a free one, settings and files are what it opens with."""
    if not host:  # would be every address of the machine
        raise ArgumentError(f"host must be an address or a name, such as 127.0.0.1; got {host!r}")
    token = "" if host in (LOOPBACK, "localhost", "::1") else secrets.token_urlsafe(24)
    explorer = ExplorerPage(Uploads(files))
    try:
        page = Page(explorer.routes(), port, host, token, HEADERS | {"Content-Security-Policy": POLICY})
    except (OSError, ValueError, TypeError) as error:
        got = f"{checks.show(f'{host}:{port}')} ({reason(error)})"
        raise ArgumentError(f"host and port must be free to listen on; got {got}") from None
    try:
        with contextlib.suppress(KeyboardInterrupt):
            threading.Thread(target=lambda: explorer.pool, daemon=True).start()  # processes start while the page loads
            query = "&".join(filter(None, [settings.address(), token and f"token={token}"]))
            link = page.url + (f"?{query}" if query else "")
            print(f"fedlsa explore: {link}  (Ctrl-C ends it)", flush=True)
            if token:
                print("whoever has this link and can reach this machine can use the page, and upload to it", flush=True)
            if browser:
                threading.Timer(0.1, webbrowser.open, (link,)).start()
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it, it tidies up
            gc.freeze()  # what is loaded stays: to look through all of it now and then would keep an answer waiting
            threading.Event().wait()
    finally:
        page.close()
        explorer.close()


def about() -> dict[str, Any]:
    """What the page's script must know: settings with their labels and places, problems, methods, the map's places."""
    settings = {
        name: {"default": setting.default, **{k: setting.metadata[k] for k in ("label", "element", "unit", "offers")}}
        for name, setting in SETTINGS.items()
    }
    problems = {
        name: {"title": title, "settings": OF_PROBLEM[name], "start": STARTS[name], "says": EXPLAINED[name]}
        for name, title in PROBLEMS.items()
    }
    places = {"columns": answers.STEP_SIZES, "rows": sorted(MAP_STEPS, reverse=True)}
    told = {"settings": settings, "problems": problems, "methods": METHODS, "map": places}
    return told | {"others": [kind.__name__ for _, kind, _ in BESIDE.values()], "upload_bytes": MAX_UPLOAD_BYTES}


class ExplorerPage:
    """What the page answers; safe to be asked by many threads."""

    def __init__(self, uploads: Uploads, pool: Pool | None = None) -> None:
        self.uploads, self._pool = uploads, pool
        self._starting, self._drawing = threading.Lock(), threading.Lock()  # one pool, and one picture at a time

    @property
    def pool(self) -> Pool:
        """The processes of all pages; they start when they are first asked for."""
        with self._starting:
            if self._pool is None:
                self._pool = Pool(modules=answers.NEEDED)
            return self._pool

    def close(self) -> None:
        """End all work, and forget what was uploaded."""
        if self._pool is not None:
            self._pool.close()
        self.uploads.forget()

    def routes(self) -> dict[str, Callable[[], Shown] | QueryRoute]:
        """All paths of the page."""
        html, css, script = (pages.static_text(f"explorer.{kind}", __package__) for kind in ("html", "css", "js"))
        scripts = pages.scripts("chart", "scene") | {"explorer.js": script}
        tags = "\n".join(f'<script src="/{name}" defer></script>' for name in ("about.js", *scripts))
        texts = scripts | {pages.COLOURS: pages.static_text(pages.COLOURS), "explorer.css": css}
        texts["about.js"] = f"const ABOUT = {json.dumps(about())};"
        whole = Shown(html.replace("SCRIPTS", tags).encode(), KINDS["html"])
        out: dict[str, Callable[[], Shown] | QueryRoute] = {
            f"/{name}": partial(Shown, text.encode(), KINDS[name.split(".")[-1]]) for name, text in texts.items()
        }
        out |= {"/": QueryRoute(lambda _: whole), "/take": QueryRoute(self.take)}
        out["/upload"] = QueryRoute(self.upload, MAX_UPLOAD_BYTES)
        for lines in (self._curves, self._fit, self._simulate, self._map, self._plans):
            out[f"/{lines.__name__[1:]}"] = QueryRoute(partial(self._stream, lines))
        return out

    def _stream(self, lines: Callable[[PageRequest, Question, Sites], Lines], asked: PageRequest) -> Shown:
        q, sites, first = self._question(asked)
        return Shown(_with_first(first, lines(asked, q, sites)), JSON_LINES_KIND)

    def _question(self, asked: PageRequest) -> tuple[Question, Sites, dict[str, Any]]:
        """What is asked, the files that it speaks of, and the first line of its answer: what was understood."""
        given = {k: v for k, v in asked.query.items() if k not in ABOUT_REQUEST}
        s, complaints = PageSettings.from_query(given)
        sites = self.uploads.sites(asked.query.get("files", "")) if s.problem == "files" else Sites()
        s = sites.settle(s)
        q = Question.of(s, sites.files)
        first: dict[str, Any] = {
            "settings": {name: getattr(s, name) for name in SETTINGS},
            "refused": {name: in_words(line) for name, line in complaints.items()},
            "keys": {topic: answers.key(of(q)) for topic, of in answers.DEPENDS_ON.items()},
        }
        if s.problem == "files":
            first["sites"] = {
                "names": [Path(f).name for f in sites.files], "targets": sites.targets, "texts": sites.texts,
                "columns": {t: _shown_column(t, sites) for t in sites.explaining(s.target)},
                "chosen": split_names(s.columns) or sites.explaining(s.target),
            }  # fmt: skip
        return q, sites, first

    def _ask(
        self,
        asked: PageRequest,
        topic: str,
        calls: Sequence[Computation],
        lane: str = QUICK_LANE,
        pause: float | None = None,
    ) -> contextlib.closing[Asking]:
        """Questions of this request, which are given up when the answer is no longer listened to."""
        number = int(asked.query.get("n", "0")[:15]) if asked.query.get("n", "0").isdecimal() else 0
        page = asked.query.get("page", "")[:64]
        return contextlib.closing(self.pool.ask((page, topic), calls, lane, pause, number))

    def _curves(self, asked: PageRequest, q: Question, sites: Sites) -> Lines:
        """The curves and the agents, then what is said of them, what more rounds lead to, stable step sizes."""
        s = q.page
        if s.problem == "files" and (sites.trouble or not sites.files):
            why = in_words(sites.trouble) or "Drop a file per site on the field beside, CSV or Parquet, to see curves."
            yield _line(known={"words": [why], "error": None}, plane=None)
            return
        known, drawn, begun = Curves(q), Curves(q), False
        with self._ask(asked, "curves", answers.questions(q), pause=TOGETHER) as found:
            for a in found:
                if a.kind in ("done", "failed"):
                    known = known.with_answer(
                        answers.order(q)[a.index], a.value if a.kind == "done" else in_words(a.value)
                    )
                begun = begun or a.kind == "pause" or known.complete
                if begun and known is not drawn and a.kind != "idle":
                    yield known_line(known, drawn)
                    drawn = known
                else:
                    yield b""
        if not known.complete:
            return
        yield from _rest(CALM)
        if known.by_method:
            yield _line(take=take.lines(q, known))
        if s.sampling != "iid" or not known.by_method:
            return
        three = [n for n in METHODS if n in known.by_method]
        added = [n for n in known.by_method if n not in METHODS]
        known = yield from self._settled(asked, known, "floors", three)
        steps = [
            one
            for n in answers.next_steps(q, asked.query.get("moved", ""), asked.query.get("from", ""))
            for one in answers.questions(n)
        ]
        with self._ask(asked, "ahead", steps) as found:
            yield from (b"" for _ in found)  # the pool remembers them
        yield from _rest(REST)
        known = yield from self._settled(asked, known, "limits", three)
        known = yield from self._settled(asked, known, "floors", added)  # which may take long
        yield from self._settled(asked, known, "limits", added)

    def _settled(
        self, asked: PageRequest, known: Curves, what: str, names: list[str]
    ) -> Generator[bytes, None, Curves]:
        """What more rounds lead to ("floors"), or stable step sizes ("limits"), of methods; what is then known."""
        q = known.question.without("rounds", "seeds", "scale")
        call: Callable[..., Any] = answers.floor
        lane, missing = QUICK_LANE, None
        if what == "limits":
            q, call, lane, missing = q.without("step_size"), answers.limit, LONG_LANE, math.nan
        paused, left = False, len(names)
        with self._ask(asked, "limits", [(call, (q.about(n), n)) for n in names], lane, TOGETHER) as found:
            for a in found:
                if a.kind in ("done", "failed"):
                    value, left = a.value if a.kind == "done" else missing, left - 1
                    more: Any = {what: {**getattr(known, what), names[a.index]: value}}
                    known = replace(known, **more)
                paused = paused or a.kind == "pause"
                yield known_line(known, known) if a.kind != "idle" and (paused or not left) else b""
        return known

    def _simulate(self, asked: PageRequest, q: Question, _: Sites) -> Lines:
        yield _line(share=0.0)
        last = 0.0
        with self._ask(asked, "simulate", [(answers.simulations, (q,))], LONG_LANE) as found:
            for a in found:
                if a.kind == "done":
                    yield _line(runs=seeds_data(a.value), seeds=q.settings.seeds)
                elif a.kind == "failed":
                    yield _line(trouble=in_words(a.value))
                elif a.kind == "progress" and time.monotonic() - last > REDRAW:
                    last = time.monotonic()
                    yield _line(share=round(a.value[0] / a.value[1], 3) if a.value[1] else 0.0)
                else:
                    yield b""

    def _map(self, asked: PageRequest, q: Question, _: Sites) -> Lines:
        q = answers.map_question(q)
        done, left_out = 0, False
        yield _line(progress=f"Computing the map: 0 of {len(MAP_STEPS)} rows …")
        with self._ask(asked, "map", [(answers.map_row, (q, steps)) for steps in MAP_STEPS], LONG_LANE) as found:
            for a in found:
                if a.kind == "done":
                    done += 1
                    row = answers.row_data(a.value, MAP_STEPS[a.index])
                    left_out = left_out or any("Left out" in cell[2] for cell in row)
                    said = f"Computing the map: {done} of {len(MAP_STEPS)} rows …"
                    if done == len(MAP_STEPS):
                        said = f"After {q.settings.rounds} rounds of independent observations."
                        said += " Some cells ran out of time: draw the map again to go on." * left_out
                    yield _line(progress=said, steps=MAP_STEPS[a.index], row=row)
                elif a.kind == "failed":
                    yield _line(progress=in_words(a.value))
                else:
                    yield b""

    def _plans(self, asked: PageRequest, q: Question, _: Sites) -> Lines:
        """A plan for each method, then the points of the trade-off between rounds and observations."""
        from ..figures.chart_data import chart_data
        from ..figures.cost_curves import trade_off_chart
        from ..figures.lines import ChartRows
        from ..theory.planner import pareto_front

        of = "bytes" if q.page.x == "bytes" else "communications"
        q, epsilon, names = answers.plan_question(q), q.page.epsilon, q.page.shown()
        plans, points = dict[str, Any](), list[Any]()
        head = f"{PROBLEMS[q.settings.problem]}, independent observations, RMSE ≤ {epsilon:g}"
        yield _line(busy="Looking for the cheapest run of each method …", head=head)
        with self._ask(asked, "plans", [(answers.plan, (q.about(n), epsilon, n)) for n in names], LONG_LANE) as found:
            for a in found:
                name, told = names[a.index], a.value
                if a.kind not in ("done", "failed"):
                    yield b""
                elif isinstance(told, str):
                    yield _line(method=name, why=in_words(told))
                else:
                    plans[name] = told
                    yield _line(method=name, cells=_cells(told), settings=_planned(told))
        if not plans:
            yield _line(busy="")
            return
        yield _line(busy="Looking for the trade-off between rounds and observations …")
        with self._ask(
            asked, "plans", [(answers.trade_off, (q.about(n), epsilon, n)) for n in plans], LONG_LANE
        ) as found:
            for a in found:
                if a.kind == "done":
                    points += a.value
                    drawn = replace(trade_off_chart([*points, *plans.values()], of), y=AXES[of])
                    chart = chart_data(ChartRows([[drawn]]))
                    yield _line(chart=chart["charts"][0])
                else:
                    yield b""
        known = [*points, *plans.values()]
        fronts = {n: pareto_front([p for p in known if type(p.algorithm).__name__ == n]) for n in names}
        yield _line(busy="", marks=[[n, *_cells(p)] for n, front in fronts.items() for p in front])

    def _fit(self, asked: PageRequest, q: Question, sites: Sites) -> Lines:
        """The fit of the reader's files: its summary, and the lines that make it."""
        if q.settings.problem != "files" or sites.trouble or not sites.files:
            return
        with self._ask(asked, "fit", [(answers.fit_table, (answers.fit_question(q),))]) as found:
            for a in found:
                if a.kind in ("done", "failed"):
                    code = f"import fedlsa as fl\n\nfit = {fit_call(q.settings, q.files)}\nprint(fit.summary())"
                    yield _line(fit=a.value if a.kind == "done" else fill(in_words(a.value), 78), code=code)
                yield b""

    def upload(self, asked: PageRequest) -> Shown:
        """Keep a file; the answer says what is wrong with it, or nothing."""
        try:
            self.uploads.store(asked.query.get("files", ""), asked.query.get("name", ""), asked.body)
        except FedLSAError as error:
            return Shown(json.dumps({"trouble": str(error)}).encode(), JSON_KIND)
        return Shown(b"{}", JSON_KIND)

    def take(self, asked: PageRequest) -> Shown:
        """A picture or data of what the page shows, as a file; name : of the file, whose ending decides."""
        q, _, _ = self._question(asked)
        name = asked.query.get("name", "")
        if name not in take.FILES:
            return Shown(b"there is no such file\n", code=404)
        try:
            write = partial(take.write_agents, q=q)
            if not name.startswith("agents"):
                found = self._all(asked, answers.questions(q)[1:])
                curves = {answers.order(q)[1 + a.index]: a.value for a in found if a.kind == "done"}
                again = [(answers.simulations, (q,))] if asked.query.get("simulated") else []
                runs = [run for a in self._all(asked, again) if a.kind == "done" for run in a.value]
                if not curves:
                    raise ArgumentError("a file must hold a curve; got none")
                write = partial(take.write, q=q, curves=curves, runs=runs)
            with self._drawing:
                body = as_bytes(name, write)
        except FedLSAError as error:
            return Shown(f"{in_words(str(error))}\n".encode(), code=400)
        return Shown(
            body, "application/octet-stream", headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    def _all(self, asked: PageRequest, calls: Sequence[Computation]) -> list[Progress]:
        with self._ask(asked, f"take {asked.query.get('name')}", calls, LONG_LANE) as found:
            return [a for a in found if a.kind in ("done", "failed")]


def _line(**told: Any) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _with_first(first: dict[str, Any], lines: Lines) -> Lines:
    with contextlib.closing(lines):
        yield _line(**first)
        yield from lines
        yield _line(end=True)


def _rest(seconds: float) -> Lines:
    """Wait, and look meanwhile whether anybody still listens."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        yield b""
        time.sleep(min(left, 0.1))


def _cells(p: Any) -> list[str]:
    """A plan as cells of the table: step size, local steps, rounds, observations, bytes."""
    a, length = p.algorithm, getattr(p.algorithm, p.algorithm.length)
    steps = f"1/p = {1 / length:.0f}" if a.random_lengths else str(length)
    return [f"{a.step_size:.3g}", steps, str(p.rounds), f"{p.samples:,.0f}", f"{p.bytes:,}"]


def _planned(p: Any) -> dict[str, Any]:
    """The settings of a plan, which is made for independent observations."""
    a, length = p.algorithm, getattr(p.algorithm, p.algorithm.length)
    probability, steps = (length, max(1, round(1 / length))) if a.random_lengths else (None, length)
    own = {"step_size": a.step_size, "local_steps": steps, "probability": probability, "rounds": p.rounds}
    return own | {"sampling": "iid"}


def _shown_column(term: str, sites: Sites) -> str:
    name, text = column_name(term)
    shown = f"{name} (categories)"
    return name if not text else f"{name}, in categories" if shown in sites.columns else shown
