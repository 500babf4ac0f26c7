"""The network's folders: keys, certificates, bundles, service files, configuration."""
