"""How far estimates may be off, and how sites differ: covariances, the bootstrap, heterogeneity."""
