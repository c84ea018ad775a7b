"""The judge on a chat server (row 3): one request a completion, its verdict read from one line.

The prompt is a domain's (`domains/`).
"""

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice

from cooper_rl.config.data import ServerConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import ServerError
from cooper_rl.machine.daemon_pool import DaemonPool
from cooper_rl.progress import Progress
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Verdict
from cooper_rl.schema.reports import JudgeUsage
from cooper_rl.servers.budget import estimate
from cooper_rl.servers.chat import ChatClient, RequestError
from cooper_rl.verdicts.hybrid import JudgeItem, JudgeResult, check_judged

logger = logging.getLogger(__name__)


class ChatJudge:
    """Judges completions by asking a chat server; implements `verdicts.hybrid.StreamingJudge`."""

    def __init__(self, server: ServerConfig, domain: Domain | None = None) -> None:
        """`domain` words the question; None: the default domain."""
        self.name = server.model
        self._prompt = (domain or default_domain()).judge_prompt
        prompt = self._prompt("question", "reference answer", "completion", nonce="nonce")
        self.identity = (
            f"{server.model}, temperature={server.temperature}, "
            f"max_tokens={server.max_tokens}, "
            f"prompt={hashlib.blake2b(repr(prompt).encode(), digest_size=8).hexdigest()}"
        )
        self._client = ChatClient(server)

    @property
    def usage(self) -> JudgeUsage:
        """Usage so far."""
        return self._client.usage

    def announce(self, items: Iterable[JudgeItem], *, is_most: bool = False) -> str:
        """The cost of asking about these, in words, with the limits that it goes over."""
        server = self._client.server
        prompts = (self._prompt(*item, nonce=secrets.token_hex(8)) for item in items)
        return self._client.announce(estimate(prompts, server), is_most=is_most)

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        """One result per item, in order. Raises ServerError when the server cannot be used at all."""
        found = dict(self.stream(items))
        results = [found[index] for index in range(len(items))]
        check_judged(results, judge=self.name)
        return results

    def stream(self, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
        """(index, result) of every item, in the order in which the verdicts come.

        The next request is made when a verdict was taken, so that a run that is killed has lost no more than
        were on their way.
        """
        progress = Progress("judge", len(items), logger)
        self._client.begin()
        rest = iter(enumerate(items))
        waiting: dict[Future[JudgeResult], int] = {}
        failure: ServerError | None = None
        with DaemonPool(self._client.server.max_concurrency) as threads:
            try:
                while True:
                    more = 0 if failure else self._client.server.max_concurrency - len(waiting)
                    for index, item in islice(rest, more):
                        waiting[threads.submit(self._judge_one, item)] = index
                    if not waiting:
                        break
                    done = next(iter(wait(waiting, return_when=FIRST_COMPLETED).done))
                    index = waiting.pop(done)
                    try:
                        result = done.result()
                    except ServerError as error:
                        failure = failure or error  # what is on its way is paid for, and kept
                        continue
                    yield index, result
                    progress.advance()
            except BaseException:
                # Also where a caller stops iterating (GeneratorExit): threads in a pause would hold up the
                # end.
                self._client.stop("the run was stopped")
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        if failure is not None:
            raise failure

    def _judge_one(self, item: JudgeItem) -> JudgeResult:
        # Unguessable, so that no completion can hold a tag or a verdict line of its own request.
        nonce = secrets.token_hex(8)
        try:
            answer = self._client.ask(self._prompt(*item, nonce=nonce), seed=derive_seed("judge", *item))
        except RequestError as failure:
            return JudgeResult("unparsable", f"no answer: {failure}", failure.kind)
        return read_verdict(answer, nonce)


_VERDICTS: dict[str, Verdict] = {"CORRECT": "correct", "INCORRECT": "incorrect", "UNSURE": "unparsable"}


def read_verdict(answer: str, nonce: str) -> JudgeResult:
    """The verdict of the only verdict line; `unparsable` when there is none, or more than one differing."""
    # Line by line: a pattern whose margins match line breaks takes quadratic time on a degenerate answer.
    line = re.compile(rf"VERDICT-{re.escape(nonce)}[ \t*_`]*:[ \t*_`]*(CORRECT|INCORRECT|UNSURE)")
    matches = (line.fullmatch(text.strip(" \t\r*_`#>.")) for text in answer.split("\n"))
    named = sorted({str(match[1]) for match in matches if match})
    if len(named) != 1:
        found = "no verdict line" if not named else f"contradictory verdict lines {named}"
        return JudgeResult("unparsable", f"{found} in {answer[-120:]!r}")
    return JudgeResult(_VERDICTS[named[0]], answer[:200] or named[0])
