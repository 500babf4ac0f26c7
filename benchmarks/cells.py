"""What is measured: cells (one setting each), the contenders of each cell, and the plans --quick, --page and --full."""

from __future__ import annotations

from dataclasses import dataclass, replace

FEDLSA, NUMPY, JAX, JAX_ALIAS, CPP = "fedlsa", "numpy", "jax", "jax with our alias tables", "c++"
BASELINES = (NUMPY, JAX, JAX_ALIAS, CPP)
CORES = ("one", "two", "all")
STEP_SIZE = 0.1


@dataclass(frozen=True)
class Cell:
    """SCAFFLSA on a heterogeneous Garnet of the paper: d features, N agents, H local steps, so many seeds."""

    d: int = 8
    N: int = 100
    H: int = 1000
    seeds: int = 10
    sampling: str = "iid"
    dtype: str = "float64"
    observations: str = "rank-one"

    @property
    def states(self) -> int:
        """More states than features, so that the averaged system is invertible."""
        return max(30, 4 * self.d)

    def __str__(self) -> str:
        usual = Cell()
        extra = [v for v in (self.sampling, self.dtype, self.observations) if v not in vars(usual).values()]
        return " ".join([f"d={self.d} N={self.N} H={self.H} seeds={self.seeds}", *extra])


@dataclass(frozen=True)
class Entry:
    """A cell, who runs it, and on which cores."""

    cell: Cell
    who: str = FEDLSA
    cores: str = "one"


HEADLINE = Cell()


@dataclass(frozen=True)
class Plan:
    """What one run of the benchmark measures, and for how long."""

    name: str
    headline: Cell
    grid: tuple[Cell, ...]
    with_baselines: tuple[Cell, ...]  # those cells of the grid that the baselines run too
    growth: dict[str, tuple[Cell, ...]]  # one of N, H, d, seeds varies, the rest is the headline's
    kinds: tuple[Cell, ...]  # other observations, numbers and samplings
    threads: tuple[Cell, ...]  # where seeds alone do not fill the cores
    seconds: float  # of one timing
    repeats: int
    headline_repeats: int
    starts: bool  # whether to measure a first start, which compiles
    cores: tuple[str, ...] = CORES
    baselines: tuple[str, ...] = BASELINES
    memory_agents: int = 100_000

    @property
    def short_rounds(self) -> Cell:
        return replace(self.headline, H=1)

    @property
    def trajectory(self) -> Cell:
        return replace(self.headline, sampling="markov")

    def groups(self) -> list[list[Entry]]:
        """Entries that are timed in turns, group by group; what stands in the tables together stands here together."""
        first = [Entry(self.headline, who, c) for c in self.cores for who in (FEDLSA, *self.baselines)]
        first = [e for e in first if e.who == FEDLSA or e.cores != "two"]
        first += [Entry(cell, FEDLSA, c) for cell in (self.short_rounds, self.trajectory) for c in self.cores]
        groups, seen = [first], set(first)
        rest = (*self.grid, *(cell for cells in self.growth.values() for cell in cells), *self.kinds, *self.threads)
        for cell in sorted(rest, key=lambda c: (c.observations, c.dtype, c.d, c.N, c.H, c.seeds)):
            others = tuple(w for w in self.baselines if w != JAX_ALIAS) if cell in self.with_baselines else ()
            whos = (FEDLSA, *others)
            group = [Entry(cell, who, c) for who in whos for c in self.cores if c != "two"]
            group = [e for e in group if e not in seen]
            seen.update(group)
            if group:
                groups.append(group)
        return groups


def _growth(base: Cell, **values: tuple[int, ...]) -> dict[str, tuple[Cell, ...]]:
    return {name: tuple(replace(base, **{name: n}) for n in ns) for name, ns in values.items()}


FULL = Plan(
    name="full",
    headline=HEADLINE,
    grid=tuple(Cell(d, N, H) for d in (8, 32, 128) for N in (10, 100, 1000) for H in (1, 10, 1000)),
    with_baselines=(
        *(Cell(8, N, H) for N, H in ((10, 1000), (100, 1), (100, 10), (100, 1000), (1000, 1), (1000, 1000))),
        Cell(32, 100, 1000),
        Cell(128, 100, 1000),
    ),
    growth=_growth(
        HEADLINE,
        N=(1, 10, 100, 1000, 10_000),
        H=(1, 10, 100, 1000, 10_000),
        d=(4, 8, 16, 32, 128),
        seeds=(1, 2, 3, 10, 100),
    ),
    kinds=(
        replace(HEADLINE, dtype="float32"),
        replace(HEADLINE, sampling="markov"),
        replace(HEADLINE, observations="dense"),
    ),
    threads=(*(Cell(N=N, H=H, seeds=1) for N, H in ((100, 10), (1000, 10), (1000, 1000))), Cell(N=1000, H=1)),
    seconds=0.25,
    repeats=3,
    headline_repeats=7,
    starts=True,
)

PAGE = replace(  # all that the page shows, in under four minutes
    FULL, name="page", grid=(), with_baselines=(), seconds=0.15, repeats=3, headline_repeats=5
)

_TINY = Cell(N=10, H=10, seeds=2)
QUICK = Plan(
    name="quick",
    headline=_TINY,
    grid=tuple(Cell(8, N, H, 2) for N in (10, 100) for H in (1, 10)),
    with_baselines=(_TINY,),
    growth=_growth(_TINY, N=(10, 100), H=(1, 10), d=(8,), seeds=(1, 2)),
    kinds=(replace(_TINY, sampling="markov"),),
    threads=(),
    seconds=0.02,
    repeats=2,
    headline_repeats=2,
    starts=False,
)
PLANS = {plan.name: plan for plan in (FULL, PAGE, QUICK)}
