"""`python -m cooper_rl.backends.prepare_buckets`, as manifests of 0.1.0 call `cooper_rl.storage.buckets`."""

import sys

from cooper_rl.storage.buckets import main

if __name__ == "__main__":
    sys.exit(main())
