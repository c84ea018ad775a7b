"""The first domain: short final answers of mathematics problems, compared by value."""

from importlib.metadata import version

from cooper_rl.config.data import RuleConfig
from cooper_rl.domains.base import Domain
from cooper_rl.method.prompts import assistant_prompt, judge_prompt
from cooper_rl.negatives.canaries import CanaryWriter, make_canaries
from cooper_rl.negatives.mention import check_mention
from cooper_rl.negatives.perturb import Perturber
from cooper_rl.verdicts.answers.verify import parse_reference
from cooper_rl.verdicts.rule import RuleVerifier


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
)
