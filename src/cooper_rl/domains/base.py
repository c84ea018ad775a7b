"""The parts of a step that depend on the subject of its problems; everything else is the same for all.

Training, evaluation and labelling call these and nothing of a subject's own. The domain of a run is
`problems.domain`; a program registers its own in `DOMAINS` (docs/how-to/extending.md).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cooper_rl.config import names
from cooper_rl.config.data import RuleConfig
from cooper_rl.method.prompts import ChatPrompt
from cooper_rl.negatives.canaries import Canary
from cooper_rl.negatives.pairs import Assistant
from cooper_rl.registry import Registry
from cooper_rl.schema.data import Verdict, VerifyExample
from cooper_rl.verdicts.verifier import Verifier


class OpenVerifier(Protocol):
    """Starts a verifier."""

    def __call__(self, config: RuleConfig, *, num_processes: int = 1) -> Verifier:
        """`num_processes`: that verify at the same time and share the cores."""
        ...


class MakePrompt(Protocol):
    """Asks a chat server about one completion (judge) or one correct solution (assistant)."""

    def __call__(self, question: str, reference_answer: str, completion: str, /, *, nonce: str) -> ChatPrompt:
        """The nonce is unguessable: no text can close its own block or write the verdict line."""
        ...


class MakeCanaries(Protocol):
    """Attacks on graders that no grader may accept."""

    def __call__(
        self, examples: Sequence[VerifyExample], *, max_problems: int, rng: random.Random
    ) -> list[Canary]:
        """Every attack on up to `max_problems` problems, where a problem has the material for it."""
        ...


class CheckMention(Protocol):
    """A verifier that can only reject: is the reference answer stated in the completion at all?

    The question tells in which other forms it may be stated: by the letter of its choice, or rounded.
    """

    def __call__(self, question: str, reference_answer: str, completion: str, /) -> Verdict:
        """`incorrect` or `unparsable`, never `correct`."""
        ...


class HoldsAnswer(Protocol):
    """True for a completion of the question in which the right answer stands, doubts included."""

    def __call__(self, question: str, reference_answer: str, completion: str, /) -> bool:
        """Quick on garbage: searches ask it about every text that they make."""
        ...


class ListsAnswer(Protocol):
    """True for a completion that holds the right answer as one of many and states none that is right."""

    def __call__(self, question: str, reference_answer: str, completion: str, /) -> bool:
        """Asked about completions that hold the answer; quick on garbage."""
        ...


class FindReferenceFault(Protocol):
    """Finds the fault that keeps the verifier from using a reference answer."""

    def __call__(self, reference_answer: str) -> str | None:
        """The fault in words; None where completions can be checked against it."""
        ...


class IsOtherAnswer(Protocol):
    """True for two reference answers that accept no completion of the question in common."""

    def __call__(self, question: str, reference_answer: str, other: str, /) -> bool: ...


class FindStatedAnswer(Protocol):
    """The reference answer by which a completion would be right; None where it states none."""

    def __call__(self, completion: str, /) -> str | None: ...


class FindContradiction(Protocol):
    """The reference answer by which a completion would be right, where it is certainly wrong by this one."""

    def __call__(self, question: str, reference_answer: str, completion: str, /) -> str | None:
        """None where it is right, states no answer, or states one that is not quickly compared."""
        ...


class Refutes(Protocol):
    """True for a completion that the domain's rules find wrong (`verify_rm.veto`)."""

    def __call__(self, question: str, reference_answer: str, completion: str, read: str, /) -> bool:
        """`read`: the parts of the completion that VerifyRM reads. Quick on garbage: every score asks."""
        ...


class VaryAnswer(Protocol):
    """Another reference answer in the form of a given one; None where none is found."""

    def __call__(self, reference_answer: str, rng: random.Random, /) -> str | None: ...


class MakeMatching(Protocol):
    """Made-up examples of what counts as the same answer; some may go on where a right completion ends."""

    def __call__(
        self, count: int, rng: random.Random, solved: Sequence[VerifyExample], /
    ) -> list[VerifyExample]: ...


class CutCompletion(Protocol):
    """The text that VerifyRM reads of a completion: one part, or several with gaps between them."""

    def __call__(self, reference_answer: str, completion: str, /) -> tuple[str, ...]:
        """Bounded in length, quick on garbage, and the same for the same two texts: every score asks for it.

        A folder of VerifyRM notes the domain and not the function: whoever changes it trains VerifyRM again.
        """
        ...


class NameVerdicts(Protocol):
    """Names everything that a verdict depends on beside the two texts; kept verdicts are found by it."""

    def __call__(self, rule: RuleConfig) -> str: ...


@dataclass(frozen=True)
class Domain:
    """One subject. The two writers make negatives without a server (`cooper.pairs.negatives`)."""

    name: str
    open_verifier: OpenVerifier
    name_verdicts: NameVerdicts
    judge_prompt: MakePrompt
    assistant_prompt: MakePrompt
    make_canaries: MakeCanaries
    canary_writer: Assistant
    """Writes texts that are wrong by construction."""
    perturber: Assistant
    """Writes a correct solution with another answer."""
    check_mention: CheckMention
    holds_answer: HoldsAnswer
    find_reference_fault: FindReferenceFault
    is_other_answer: IsOtherAnswer
    make_matching: MakeMatching | None
    """None: the domain has no such lesson."""
    find_stated_answer: FindStatedAnswer
    """Makes right examples of wrong ones (`verify_rm.swapped_references`)."""
    name_answer_type: Callable[[str], str] | None = None
    """The kind of a reference answer, by which labels are counted; None: all are of one kind."""
    cut_completion: CutCompletion | None = None
    """None: VerifyRM reads the completion itself, cut as every field is (`method/prompts.py: cut_field`)."""
    find_contradiction: FindContradiction | None = None
    """Finds a rival of the reference answer (`models/decoys.py`); None: the domain has no such rival."""
    vary_answer: VaryAnswer | None = None
    """Makes rivals of reference answers of a kind that the training data hardly has; None: it has none of
    these, and no answer is rare."""
    lists_answer: ListsAnswer | None = None
    """None: a completion that holds the right answer may always be right."""
    refutes: Refutes | None = None
    """None: the domain has no veto."""

    def may_be_right(self, question: str, reference_answer: str, completion: str) -> bool:
        """True for a completion that may be right, doubts included: the red team counts no such text as a
        hack, and learns none as wrong."""
        given = (question, reference_answer, completion)
        return self.holds_answer(*given) and not (self.lists_answer and self.lists_answer(*given))


DOMAINS: Registry[Domain] = Registry(names.DOMAINS)
"""Name in `problems.domain` -> the domain."""
