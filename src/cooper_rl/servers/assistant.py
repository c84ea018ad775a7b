"""The assistant on a chat server (row 11): it rewrites correct solutions into wrong ones.

The prompt is a domain's (`domains/`).
"""

import logging
from collections.abc import Sequence

from cooper_rl.config.data import ServerConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.servers.chat import ChatClient, RequestError

logger = logging.getLogger(__name__)


class ChatAssistant:
    """Rewrites correct solutions into wrong ones through a chat server; a `RemoteAssistant`."""

    def __init__(self, server: ServerConfig, domain: Domain | None = None) -> None:
        """`domain` words the request; None: the default domain."""
        self._prompt = (domain or default_domain()).assistant_prompt
        self.name = server.model
        self.max_concurrency = server.max_concurrency
        self._client = ChatClient(server)

    def begin(self) -> None:
        """A step's rewrites begin: a server that was gone in the step before is asked again."""
        self._client.begin()

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One rewrite per item, one after the other, in order; None where the server gave none.

        Raises:
            ServerError: the server cannot be used at all.
        """
        return [self._rewrite_one(item, seed) for item in items]

    def _rewrite_one(self, item: RewriteItem, seed: int) -> str | None:
        # A hash of all the texts: no text can hold it, and the same item and seed make the same request.
        nonce = f"{derive_seed('nonce', seed, *item):016x}"
        prompt = self._prompt(item.question, item.reference_answer, item.solution, nonce=nonce)
        try:
            answer = self._client.ask(prompt, seed=derive_seed("assistant", seed, *item))
        except RequestError as failure:
            logger.warning("assistant %s gave no rewrite: %s", self.name, failure)
            return None
        _, _, rest = answer.partition(f"<rewrite-{nonce}>")
        rewrite, closing, _ = rest.partition(f"</rewrite-{nonce}>")
        return (rewrite.strip("\n") or None) if closing else None
