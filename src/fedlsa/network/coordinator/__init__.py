"""The coordinator's side: what is settled before a run, the run itself, its files, its display, its commands."""
