"""The same recursion across real sites: the round as pure functions of messages, the site's policy, thin carriers."""
