"""The start of every worker process: it listens to its parent, not to Ctrl-C."""

import multiprocessing
import os
import signal
import threading


def follow_parent(*, end: signal.Signals = signal.SIGTERM) -> None:
    """Leave Ctrl-C to the parent, and end when it does: nobody would take what a lone worker makes.

    Args:
        end: Sent to this process. A worker that can save what it has does so at SIGTERM.
    """
    # A terminal sends Ctrl-C to the whole group: workers that end by themselves would look like failures to
    # a parent that is saving.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(end,), name="end-with-parent", daemon=True).start()


def _end_with_parent(end: signal.Signals) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Waits on a pipe that the kernel closes however the parent ended, SIGKILL included.
        parent.join()
        os.kill(os.getpid(), end)
