"""Modules that manifests of 0.1.0 run by name; each calls its successor in `storage/`.

fetch_model  is `storage/models.py`      prepare_buckets  is `storage/buckets.py`
"""
