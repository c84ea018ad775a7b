"""Arms x seeds from one start on this machine: `run` is the whole, `jobs` the work of one process."""
