"""What manifests of 0.1.0 run by name; each does what its successor in `storage/` does.

fetch_model  is `storage/models.py`      prepare_buckets  is `storage/buckets.py`
"""
