"""The machine that a process runs on.

cores    processors that may be used       threads  torch's threads and allocator
device   CUDA, MPS or CPU                   memory   its limit, and out-of-memory errors
workers  processes that end with their parent
locking  locks between processes            lines    an append-only file, under every journal
scratch  temporary folders, and drafts  files beside an output, that do not outlive a killed run
index    tables on disk, for more rows than memory holds
parsing  Python's own parser
sources  digests of our own code           command  the command line that was typed
processor  its name and vector instructions
daemon_pool  threads that Ctrl-C does not wait for
"""
