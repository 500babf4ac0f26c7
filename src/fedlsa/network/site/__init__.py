"""A site's side: its data, what it says of them, its answers to orders, the command that joins."""
