"""The Hugging Face hub: found out once in a process whether it can be asked for models and data sets."""

import logging
import os
from functools import cache

from huggingface_hub import constants, get_session

# Of the client that this version of the hub's library asks with: requests, httpx or httpx2.
from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

from cooper_rl.outgoing import Obstacle, describe, hub_obstacle
from cooper_rl.schema.texts import in_one_line
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
AWAY = frozenset({502, 503, 504})
FETCH = "fetch it where the hub can be reached (hf download)"


@cache
def ask_hub() -> str | None:
    """Ask the hub whether it is there, once in a process. Returns why it is not asked for more, or None.

    A hub that does not answer is asked no more, by this process and its children: the hub's library would
    ask six times, over 23 seconds, for each file that a model may have and the cache lacks.
    """
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE=1 forbids to ask the hub"
    try:
        with Waiting(constants.ENDPOINT, logger, limit=f"{TIMEOUT_SECONDS:g} s").asked():
            status = get_session().head(constants.ENDPOINT, timeout=TIMEOUT_SECONDS).status_code
        reason = f"the hub is away ({constants.ENDPOINT} answered {status})" if status in AWAY else None
    except (OSError, HTTPError) as error:
        reason = explain_away(error)
    if reason is not None:
        constants.HF_HUB_OFFLINE = True
        os.environ["HF_HUB_OFFLINE"] = "1"
        logger.warning("%s; what it would give is taken from %s", reason, constants.HF_HOME)
    return reason


def explain_away(error: Exception) -> str:
    """The reason why the hub could not be asked, in one line, with what of this machine stands in the way."""
    return f"the hub cannot be asked ({in_one_line(describe(error, constants.ENDPOINT))[:400]})"


def explain_missing(error: Exception) -> Obstacle:
    """Why something of the hub cannot be had, and the remedy; the hub's libraries may name another reason."""
    if (found := hub_obstacle(error)) is not None:
        return found
    return Obstacle(ask_hub() or explain_away(error), FETCH)
