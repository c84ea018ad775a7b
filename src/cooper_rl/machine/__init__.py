"""The machine that a process runs on.

cores    processors that may be used       threads  torch's threads and allocator
device   CPU or GPU                        memory   out-of-memory errors with a remedy
workers  processes that end with their parent
locking  locks between processes            lines    an append-only file, under every journal
command  the command line that was typed
scratch   temporary folders that do not outlive a killed run
"""
