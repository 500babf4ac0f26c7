"""Sums over the rows of clusters, which may have rows at many sites, and in many parts of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from .formulas import typed_labels
from .rows import Piece
from .tables import Codes, distinct, name_of

HELD = 2**20  # numbers of rows' products that are worked on at a time
CLUSTER_BYTES = 2**30  # for the sums of all clusters


class ClusterSums:
    """Sums over the rows of each cluster at each site; width : numbers of a row; by_site : whether sites are clusters.

    Rows come in any order. A cluster may have rows at many sites; then its sums are joined by its label (`join_pairs`).
    less : what to say where they do not fit into memory
    """

    def __init__(self, width: int, by_site: bool, less: str = "") -> None:
        self.width, self.by_site, self._less = width, by_site, less
        self._codes: dict[Any, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._sums = np.zeros((0, width))

    def add(self, p: Piece, rows: Callable[[slice], Floats]) -> None:
        """The next rows; rows : gives the numbers (k, width) of some of them."""
        codes = np.zeros(len(p.y), np.int64)
        if not self.by_site and p.cluster is not None:
            local, labels = distinct(p.cluster)
            codes = np.array([self._codes.setdefault(label, len(self._codes)) for label in labels], np.int64)[local]
        sites = np.repeat(p.sites, p.counts)
        _, first, pair = np.unique(sites * (len(self._codes) + 1) + codes, return_index=True, return_inverse=True)
        order, places = np.argsort(first), np.empty(len(first), np.int64)
        places[order] = self._places(sites[first[order]], codes[first[order]])
        for at in range(0, len(codes), step := max(1, HELD // self.width)):
            part = slice(at, at + step)
            here = places[pair[part]]
            order = np.argsort(here, kind="stable")
            found, begins = np.unique(here[order], return_index=True)
            self._sums[found] += np.add.reduceat(rows(part)[order], begins, axis=0)

    def add_pairs(self, sites: Codes, labels: Sequence[Any], sums: Floats) -> None:
        """Sums of other rows, as `pairs` gives them; the same clusters by their labels."""
        codes = [0 if self.by_site else self._codes.setdefault(label, len(self._codes)) for label in labels]
        places = self._places(sites, np.array(codes, np.int64))
        self._sums[places] += sums

    def _places(self, sites: Codes, codes: Codes) -> Codes:
        """Where the sums of pairs stand, each pair once; new ones come last."""
        keys = zip(sites.tolist(), codes.tolist(), strict=True)
        places = np.array([self._pairs.setdefault(key, len(self._pairs)) for key in keys], np.int64)
        if (count := len(self._pairs)) > len(self._sums):
            if 8 * count * self.width > CLUSTER_BYTES:
                rule = f"sums of all clusters must fit into {CLUSTER_BYTES >> 20} MiB"
                raise SiteDataError(f"{rule}{self._less}; got more than {len(self._sums):,} clusters")
            more = max(count - len(self._sums), len(self._sums))
            self._sums = np.concatenate([self._sums, np.zeros((more, self.width))])
        return places

    def pairs(self, start: int) -> tuple[Codes, list[Any], Floats]:
        """Of each site and cluster, in the order of first rows: the site, counted from `start`, the label, the sums."""
        sites, known = np.array([site for site, _ in self._pairs], np.int64) + start, list(self._codes)
        labels = sites.tolist() if self.by_site else [known[code] for _, code in self._pairs]
        return sites, labels, self._sums[: len(self._pairs)]


@dataclass(frozen=True, eq=False)
class ClusterPairs:
    """Of k pairs of a site and a cluster with rows there: the site, the cluster's place among the labels, the sums."""

    sites: Codes
    places: Codes
    sums: Floats
    labels: Sequence[Any]

    def joined(self, values: Floats) -> Floats:
        """(clusters, ...): sums over the sites of what the pairs have : (k, ...)."""
        out = np.zeros((len(self.labels), *values.shape[1:]))
        np.add.at(out, self.places, values)
        return out


def join_pairs(found: Sequence[tuple[Codes, list[Any], Floats]]) -> ClusterPairs:
    """Pairs of several groups of sites, clusters joined by their labels; 5, "5" and 5.0 are one, as is a day.

    Where texts are no numbers, what a number beside them means is not known: "05" may be 5, or not.
    """
    every = [label for _, labels, _ in found for label in labels]
    texts = typed_labels({label for label in every if isinstance(label, str)})
    text = next((x for x, kind in texts.items() if isinstance(kind, str) and typed_labels([x])[x] == x), None)
    number = next((x for x in every if isinstance(x, (int, float))), None)
    if text is not None and number is not None:
        raise SiteDataError(f"clusters must have labels of one kind; got the text {text!r} and the number {number!r}")
    codes: dict[str, int] = {}
    names = [name_of(texts.get(label, label)) for label in every]
    places = np.array([codes.setdefault(name, len(codes)) for name in names])
    sites, sums = (np.concatenate([one[k] for one in found]) for k in (0, 2))
    _, first, pair = np.unique(sites * len(codes) + places, return_index=True, return_inverse=True)
    if len(first) < len(sites):  # a site has rows of "5" in one file and of 5 in another
        np.add.at(sums, first[pair], np.where((first[pair] == np.arange(len(pair)))[:, None], 0.0, sums))
        first.sort()
        sites, places, sums = sites[first], places[first], sums[first]
    return ClusterPairs(sites, places, sums, list(codes))
