"""`python -m cooper_rl.backends.fetch_model`, as manifests of 0.1.0 call `cooper_rl.storage.models`."""

import sys

from cooper_rl.storage.models import main

if __name__ == "__main__":
    sys.exit(main())
