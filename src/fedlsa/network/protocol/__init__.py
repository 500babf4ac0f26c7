"""The round as pure functions of messages: what is said, what each side does with it, what each side stores."""
