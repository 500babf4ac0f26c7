"""The adapter to Flower: its processes, its tasks, its messages. All that depends on Flower's inner shape is here."""
