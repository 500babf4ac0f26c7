"""Databases changed from outside, as a forger or a failing disk does."""

import contextlib
import sqlite3

from fedlsa.network.disk import STORE


def change(folder, *statements):
    """Run SQL on a folder's database, past everything that guards it."""
    with contextlib.closing(sqlite3.connect(folder / STORE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def rows(folder, select):
    with contextlib.closing(sqlite3.connect(folder / STORE)) as db:
        return db.execute(select).fetchall()


def put_aside(folder):
    """The database is lost, with what belongs to it."""
    for path in folder.glob(f"{STORE}*"):
        path.unlink()
