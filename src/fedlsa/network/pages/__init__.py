"""What people and monitors see: live pages of coordinator and site, /health and /metrics, read-only."""
