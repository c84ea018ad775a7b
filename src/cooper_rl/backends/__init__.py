"""Modules that the manifests of 0.1.0 run by name; each does what its successor in `storage/` does."""
