"""What a task of the compiled engine is made of: the fields of its record, which Python fills and kernels read.

A task is one configuration with some of its seeds. A chain is an (agent, seed) pair; sixteen of them, its lanes, make a
group. Chains stand in the order (chunk of 16 agents, seed, agent), so that a group holds sixteen agents of one seed.
The N % 16 agents that are left follow in the order (agent, seed), and idle lanes fill their last group. When only some
agents take part, in tasks of one seed, lane a is the a-th of them. All parameters are rows of D >= dim numbers, padded
with zeros, in flat arrays; R seeds, P chains.
"""

from __future__ import annotations

from numba import float64, int64, uint32

from .addresses import REAL, record_reader

DRAWN_AT_ONCE = 64  # observations that a group draws at once: their words stay in the first-level cache
FETCHED_AHEAD = 64  # lanes: how far ahead short rounds ask for the outcomes that they will read
MEMBER = 8  # counters stand so far apart: each has a cache line of its own
LANES = 16  # chains that draw together; a multiple of every number of chains that step together

# What a chain needs to draw, as rows of words. It has drawn 4 block + offset observations. slot : where its alias table
# begins; row : where its outcomes begin; for trajectories both are where the table of the present state begins.
# shift : 32 - bits of its tables; length : of its log
MOVING = ("block", "offset", "slot", "row")
WORDS = (*MOVING, "agent", "key_low", "key_high", "shift", "length")
BLOCK, OFFSET, SLOT, ROW, AGENT, KEY_LOW, KEY_HIGH, SHIFT, LENGTH = range(len(WORDS))

FIELDS = {
    "draw": int64,  # addresses of kernels
    "step": int64,
    "serve": int64,
    "exchange": int64,
    "apply_hook": int64,
    "estimate": int64,  # 0: theta itself is what the method gives
    "hook": int64,  # address of the method's own server step; 0: none
    "dim": int64,
    "D": int64,  # dim padded
    "seeds": int64,
    "agents": int64,  # N
    "participants": int64,  # m; N where all take part
    "groups": int64,
    "whole": int64,  # groups of sixteen agents of one seed, which stand first
    "ahead": int64,  # whether groups keep what they drew from round to round: pays when rounds are short
    "room": int64,  # observations drawn at once
    "stride": int64,  # of what is drawn: from one step to the next
    "radius": float64,  # of the projection; 0: none
    "average_after": int64,  # -1: never
    "parameter_count": int64,
    "parameters": (float64,),  # what the hook receives; or server, then change, of a linear server
    "blocks": int64,  # of which its memory is made: theta and what it remembers beside it
    "memory": (float64,),  # (2 (blocks - 1), R D padded to eights): that, and room for what follows
    # rounds, of engine/schedule.py
    "first": int64,
    "thin": int64,
    "observations": (int64,),  # (T,): of the longest round
    "step_sizes": (REAL,),  # (T,), or (T, N) where agents differ
    "gains": (float64,),
    "taking_part": (int64,),  # (T, m)
    "own_lengths": (uint32,),  # (N,): observations of a round, where agents differ
    # observations
    "lanes": (uint32,),  # (WORDS, P): what each lane needs to draw
    "chains": (uint32,),  # (WORDS, N): the same of all agents, when only some take part
    "slots": (uint32,),
    "successor": (uint32,),
    "rows": (REAL,),
    "pair": (uint32,),  # engine/cpu_tables.py says how outcomes are laid out
    "minus_y": (REAL,),
    "ridge": (REAL,),  # (1,)
    "minus_discount": (REAL,),  # (1,)
    "zeros": (REAL,),  # (PIECE,)
    "drawn": (uint32,),  # (room, stride), when drawing ahead: the outcomes of all groups, step by step
    "marks": (int64,),  # (3,): which of them are left, from and up to; how many rounds are recorded
    # lanes
    "start": (int64,),  # (P,): where the row of its seed begins in theta
    "weights": (float64,),  # (P,)
    "hat": (REAL,),  # (P, D): local parameters
    "drift": (REAL,),  # (P, D): step size times control variate, of long rows
    "spare": (REAL,),  # (P, D): local parameters before a dense step
    "variates": (float64,),  # (P, D): control variates + shift of their seed
    "pending": (float64,),  # (R, D): that shift; 0 when only some take part
    # (whole, D): sums over the agents of a group of w_c (theta_hat_c - theta), then (P - 16 whole, D): the differences
    "partial": (float64,),  # of the chains that are left
    "pulled": (float64,),  # the same, each times its gain, where agents differ
    # the server
    "theta": (float64,),  # (R, D): the shared parameter
    "mean": (float64,),  # (R, D): the last average
    "shift_all": (float64,),  # (R, D): `pending`; when only some take part, sum_c w_c (xi_c + shift)
    "all_variates": (float64,),  # (N, D): xi_c + shift, when only some take part
    "all_weights": (float64,),  # (N,)
    "squares": (float64,),  # (R,): ||theta||^2, where somebody wants to know
    "running": (float64,),  # (R, D): the average of iterates
    "diverged": (int64,),  # (R,): first round whose theta is not finite, or -1
    "failed": (int64,),  # (R,): first round whose hook raised, or 0
    "recorded_rounds": (int64,),  # ending in -1, a round that never comes
    "record": (float64,),  # (records, R, D)
    # [0] members that have done their share, [MEMBER] rounds that are served, [MEMBER (m + 2)] rounds in which member m
    # has begun the group that the next one ends
    "counters": (int64,),
}

task_at = record_reader(FIELDS)
