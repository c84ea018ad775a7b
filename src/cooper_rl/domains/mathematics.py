"""The first domain: short final answers of mathematics problems, compared by value."""

from importlib.metadata import version

from cooper_rl.config.data import AnswerPolicy, RuleConfig
from cooper_rl.domains.base import Domain
from cooper_rl.method.prompts import assistant_prompt, judge_prompt
from cooper_rl.negatives.canaries import CanaryWriter, make_canaries
from cooper_rl.negatives.mention import check_mention
from cooper_rl.negatives.perturb import Perturber
from cooper_rl.verdicts.answer_type import name_answer_type
from cooper_rl.verdicts.answers.extraction import find_final_answer
from cooper_rl.verdicts.answers.matching import matching_examples
from cooper_rl.verdicts.answers.verify import is_another_answer, parse_reference
from cooper_rl.verdicts.rule import RuleVerifier

MAX_STATED_CHARS = 100


def name_verdicts(rule: RuleConfig) -> str:
    """The versions that compare, and what counts as the same answer."""
    versions = f"cooper-rl={version('cooper-rl')} math-verify={version('math-verify')}"
    return f"{versions}:{rule.policy.model_dump_json()}:{rule.timeout_seconds}"


def find_reference_fault(reference_answer: str) -> str | None:
    """Why nothing can be compared with it; None where it can."""
    try:
        parse_reference(reference_answer)
    except ValueError as error:
        return str(error)
    return None


def find_stated_answer(completion: str) -> str | None:
    """The final answer in its own spelling, where that is short."""
    found = find_final_answer(completion, AnswerPolicy())
    return found.text if found is not None and len(found.text) <= MAX_STATED_CHARS else None


MATHEMATICS = Domain(
    name="mathematics",
    open_verifier=RuleVerifier,
    name_verdicts=name_verdicts,
    judge_prompt=judge_prompt,
    assistant_prompt=assistant_prompt,
    make_canaries=make_canaries,
    canary_writer=CanaryWriter(),
    perturber=Perturber(),
    check_mention=check_mention,
    find_reference_fault=find_reference_fault,
    is_other_answer=is_another_answer,
    make_matching=matching_examples,
    find_stated_answer=find_stated_answer,
    name_answer_type=name_answer_type,
)
