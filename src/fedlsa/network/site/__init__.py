"""A site's side: its data, what it says of them, the desk that answers orders, the command that joins."""
