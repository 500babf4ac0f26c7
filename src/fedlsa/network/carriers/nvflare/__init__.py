"""The carrier over NVIDIA FLARE: the tasks of one job pass sealed messages between our own processes."""
