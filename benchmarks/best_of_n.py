"""Best-of-n selection among real completions: which reward picks right answers.

    OMP_NUM_THREADS=1 python -m benchmarks.best_of_n --verify-rm runs/real_data/verify_rm \\
        --examples runs/real_data/test.jsonl

Examples are labelled completions (`benchmarks/verify_rm_real_data.py` writes them), of questions that
VerifyRM has not seen. Of each question with n completions or more, n are drawn 400 times, and each reward
picks the one that it pays most; among equals one is drawn. The table has the share of right picks, a mean
over questions with 95 % bootstrap intervals over questions:

- `random`: any of the n.
- `rule`: the rule verifier; a completion on which it abstains stands between correct and incorrect ones.
- `verify_rm`: the score.
- `rule, then verify_rm`: the rule verifier's verdict, and the score where verdicts are equal.
- `possible`: one of the n is right.

Both rewards read the reference answer, as in training. A policy is taught by comparisons like these.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from cooper_rl.config.data import RuleConfig
from cooper_rl.machine.device import pick_device
from cooper_rl.models.verify_rm import load_verify_rm, score_examples
from cooper_rl.records.files import read_records
from cooper_rl.schema.data import VerifyExample
from cooper_rl.verdicts.answer_type import name_answer_type
from cooper_rl.verdicts.rule import RuleVerifier
from cooper_rl.verdicts.verifier import AnswerItem

NUM_DRAWS = 400
NUM_RESAMPLES = 2000
STANDING = {"incorrect": 0.0, "unparsable": 1.0, "correct": 2.0}
Rewards = Mapping[str, np.ndarray]
"""Name -> what every example is paid."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verify-rm", type=Path, required=True)
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--n", default="2,4,8")
    options = parser.parse_args()
    examples = read_records(options.examples, VerifyExample)
    rewards = reward(options.verify_rm, examples)
    sys.stdout.write("| answers | n | questions | " + " | ".join([*rewards, "possible"]) + " |\n")
    sys.stdout.write("|---" * (len(rewards) + 4) + "|\n")
    kinds = {"all": examples}
    for example in examples:
        kinds.setdefault(name_answer_type(example.reference_answer), []).append(example)
    places = {id(example): place for place, example in enumerate(examples)}
    for kind, members in kinds.items():
        for n in map(int, options.n.split(",")):
            groups = by_question([places[id(member)] for member in members], examples, at_least=n)
            if len(groups) >= 10:
                sys.stdout.write(describe(kind, n, groups, examples, rewards))
    return 0


def reward(verify_rm: Path, examples: Sequence[VerifyExample]) -> Rewards:
    scores = np.array(score_examples(load_verify_rm(verify_rm, device=pick_device()), examples))
    with closing(RuleVerifier(RuleConfig())) as verifier:
        checks = verifier.verify([AnswerItem(e.reference_answer, e.completion, e.question) for e in examples])
    rule = np.array([STANDING[check.verdict] for check in checks])
    return {
        "random": np.zeros(len(examples)),
        "rule": rule,
        "verify_rm": scores,
        "rule, then verify_rm": rule + scores / 2,
    }


def by_question(
    places: Sequence[int], examples: Sequence[VerifyExample], *, at_least: int
) -> list[np.ndarray]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(examples[place].question, []).append(place)
    return [np.array(group) for group in found.values() if len(group) >= at_least]


def describe(
    kind: str, n: int, groups: Sequence[np.ndarray], examples: Sequence[VerifyExample], rewards: Rewards
) -> str:
    """A line of the table."""
    labels = np.array([example.label for example in examples], dtype=float)
    rng = np.random.default_rng(0)
    draws = [np.stack([rng.permutation(group)[:n] for _ in range(NUM_DRAWS)]) for group in groups]
    cells: list[str] = []
    for paid in (*rewards.values(), labels):
        # The rows are in random order, so the first of equal rewards is a random one.
        right = [labels[np.take_along_axis(d, paid[d].argmax(1)[:, None], 1)].mean() for d in draws]
        cells.append(estimate(np.array(right)))
    return f"| {kind} | {n} | {len(groups)} | " + " | ".join(cells) + " |\n"


def estimate(values: np.ndarray) -> str:
    """The mean over questions with its interval."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(NUM_RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
