"""Trains a policy that knows an attack from the start, with a frozen VerifyRM and with Cooper.

    python -m benchmarks.poisoned_start --run RUN --verify-rm VERIFY_RM --attacks texts.jsonl --output OUT

RUN is the folder of a `verify_rm` or `end_to_end` run: its policy and problems are used. `--attacks` holds
texts of a red team; the one that it paid most is taught to the policy, until it writes that text in at least
`--share` of its rollouts. Then each arm of `--arms` trains that policy for `--steps` steps with each of
`--seeds`. Printed: the share of rollouts that hold a part of the attack in the first and the last ten steps,
and the rule accuracy there. An arm that is there already is not trained again.
"""

import argparse
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cooper_rl.comparison.arms import ARMS
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.engines.hf import HFEngine
from cooper_rl.method.metrics import THRESHOLD
from cooper_rl.models.policy import Policy, load_policy, save_policy
from cooper_rl.progress import show_log
from cooper_rl.records.files import read_records
from cooper_rl.redteam.seeds import fill
from cooper_rl.schema.data import Problem, RolloutSample
from cooper_rl.schema.red_team import AttackText
from cooper_rl.stages import train_cooper
from cooper_rl.training.rollout import begin_rollouts

BATCH_SIZE = 32
ATTACKS_PER_BATCH = 8
"""The other examples are the policy's own completions, so that it keeps what it could."""
MAX_UPDATES = 100
LR = 3e-4
NUM_TAIL_STEPS = 10
PART = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--verify-rm", type=Path, required=True)
    parser.add_argument("--attacks", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--preset", default="laptop_plain")
    parser.add_argument("--arms", default="frozen,cooper")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    show_log()
    config = load(options.preset, options.set)
    # White space alone would be found in every completion.
    texts = [found for found in read_records(options.attacks, AttackText) if found.text.strip()]
    attack = max(texts, key=lambda found: found.search_rate).text
    problems = read_records(options.run / "collect-problems" / "problems", Problem)
    models = options.output / "models"
    if not models.is_dir():
        share = poison(options.run, models, attack, problems, config, share=options.share)
        sys.stdout.write(f"{share:.1%} of the rollouts at the start are {attack!r}\n")
    sys.stdout.write(
        "| arm | seed | steps | a part of the attack | paid, rule not correct | rule accuracy |\n"
        "|---|---|---|---|---|---|\n"
    )
    for arm in options.arms.split(","):
        for seed in options.seeds.split(","):
            folder = options.output / arm / seed
            train(options, arm, [*options.set, f"seed={seed}"], models, folder)
            sys.stdout.write(rows(folder, arm, seed, attack))
            sys.stdout.flush()
    return 0


def poison(
    run: Path, models: Path, attack: str, problems: Sequence[Problem], config: Config, *, share: float
) -> float:
    """Teach a copy of the run's policy the attack, until at least `share` of its rollouts are it.

    Returns the share reached. The copy of the other models stays as it is.
    """
    draft = models.with_name("models.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(run / "prepare-models" / "models", draft)
    policy = load_policy(draft / "policy", device=torch.device("cpu"))
    own = draw(policy, problems[:200], config, seed=1)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=LR)
    rng = random.Random(0)
    reached = 0.0
    for update in range(1, MAX_UPDATES + 1):
        kept = rng.sample(own, BATCH_SIZE - ATTACKS_PER_BATCH)
        taught = [(problem, fill(attack, problem)) for problem in rng.sample(problems, ATTACKS_PER_BATCH)]
        loss = torch.stack([completion_loss(policy, *each) for each in (*kept, *taught)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 2 == 0:
            drawn = draw(policy, problems[200:400], config, seed=update)
            reached = sum(is_attack(text, fill(attack, problem)) for problem, text in drawn) / len(drawn)
            if reached >= share:
                break
    else:
        raise SystemExit(
            f"after {MAX_UPDATES} updates {reached:.1%} of the rollouts are the attack; raise LR"
        )
    save_policy(policy, draft / "policy")
    draft.rename(models)
    return reached


def draw(
    policy: Policy, problems: Sequence[Problem], config: Config, *, seed: int
) -> list[tuple[Problem, str]]:
    """Four rollouts of each problem, with the text that the policy wrote."""
    engine = HFEngine(policy.model, end_ids=policy.end_ids, pad_id=policy.pad_id)
    with torch.no_grad():
        wait = begin_rollouts(
            engine, policy, problems, config.cooper.generation, group_size=4, instruction=None, seed=seed
        )
        groups = wait()
    return [(group.problem, text) for group in groups for text in group.texts]


def completion_loss(policy: Policy, problem: Problem, text: str) -> torch.Tensor:
    """Mean negative log-probability of a completion's tokens, its end included."""
    prompt = policy.encode_prompt(problem.question, None)
    ids = [*prompt, *policy.tokenizer.encode(text, add_special_tokens=False), min(policy.end_ids)]
    labels = torch.tensor([[-100] * len(prompt) + ids[len(prompt) :]])
    loss: Any = policy.model(input_ids=torch.tensor([ids]), labels=labels).loss
    return loss


def train(
    options: argparse.Namespace, arm: str, overrides: Sequence[str], models: Path, folder: Path
) -> None:
    """One arm with one seed, from the poisoned policy."""
    if (folder / "report.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    config = load(
        options.preset,
        [
            *ARMS[arm],
            "cooper.num_logged_rollouts=128",
            f"cooper.steps={options.steps}",
            *overrides,
        ],
    )
    labels = options.run / "label-completions"
    train_cooper.run(
        config, models=models, verify_rm=options.verify_rm, replay=labels / "train",
        problems=options.run / "collect-problems" / "problems", checkpoint=folder / "checkpoint",
        examples=labels / "validation", report=folder / "report.json",
    )  # fmt: skip


def rows(folder: Path, arm: str, seed: str, attack: str) -> str:
    """Two lines of the table: the first and the last steps."""
    rollouts = [
        rollout
        for path in sorted((folder / "checkpoint" / "logs").glob("*/rollouts.jsonl"))
        for rollout in read_records(path, RolloutSample)
    ]
    last = max(rollout.step for rollout in rollouts)
    lines: list[str] = []
    for first in (1, last - NUM_TAIL_STEPS + 1):
        chosen = [each for each in rollouts if first <= each.step < first + NUM_TAIL_STEPS]
        attacks = sum(
            holds_part(each.completion, attack.replace("{question}", each.question)) for each in chosen
        )
        paid = sum(each.score > THRESHOLD and each.rule != "correct" for each in chosen)
        right = sum(each.rule == "correct" for each in chosen)
        shares = " | ".join(f"{count / len(chosen):.1%}" for count in (attacks, paid, right))
        lines.append(f"| {arm} | {seed} | {first} to {first + NUM_TAIL_STEPS - 1} | {shares} |\n")
    return "".join(lines)


def is_attack(completion: str, attack: str) -> bool:
    """True if a completion holds the attack, or begins as it does and was cut."""
    return attack.strip() in completion or (len(completion) > 8 and attack.startswith(completion.strip()))


def holds_part(completion: str, attack: str) -> bool:
    """True if a completion holds `PART` characters of the attack in a row.

    A policy that adopts an attack seldom writes it whole.
    """
    starts = range(max(len(attack.strip()) - PART, 0) + 1)
    return any(attack.strip()[start : start + PART] in completion for start in starts)


if __name__ == "__main__":
    sys.exit(main())
