"""The same recursion across real sites: the round as pure functions of messages, and its thin adapter to Flower."""
