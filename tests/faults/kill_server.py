"""A prepared process that runs a training in forked children and kills them at a given point.

Reads one job a line from standard input, {"arguments": {...}, "overrides": [...], "kill": {...}}, with
"stage": "train_verify_rm" for VerifyRM's training and without for co-training. Answers with one line:
{"status": as of subprocess.Popen.returncode, "calls": Python calls counted}. Kill points are put around
functions from outside: the product has no hook for them.

    {}                                             not killed
    {"point": "reward_update", "hit": 2}           before the second call of the function behind the name
    {"point": "after manifest", "hit": 1}          after it
    {"call": 12345}                                at the 12345th Python call after the start, anywhere
    {"call": 12345, "signal": 15}                  another signal than SIGKILL
    {"count": true}                                not killed; tells how many calls there were
"""

import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2ForCausalLM, Qwen2ForSequenceClassification

from cooper_rl.config.load import load
from cooper_rl.errors import CooperError, CooperWarning
from cooper_rl.models.policy import Policy, save_policy
from cooper_rl.models.verify_rm import new_verify_rm, save_verify_rm
from cooper_rl.records.files import write_records, write_report
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.reports import ModelSet
from cooper_rl.stages import train_cooper, train_verify_rm
from cooper_rl.storage.s3 import S3Store
from cooper_rl.tiny.problems import generate_problems
from cooper_rl.tiny.tokenizer import build_tokenizer
from tests.forking import prepare_for_forks
from tests.tiny_models import tiny_config

NUM_PROBLEMS = 6
NUM_WARM_UP_UPDATES = 180
OVERRIDES = [
    "cooper.problems_per_step=3",
    "cooper.group_size=4",
    "cooper.generation.max_new_tokens=8",
    "cooper.policy.lr=1e-3",
    "cooper.steps=3",
    "cooper.checkpoint_every=1",
    "labeling.rule.num_workers=1",
]
POINTS = {
    "rollout": "cooper_rl.training.step:begin_rollouts",
    "score": "cooper_rl.training.reward_learner:score_rollouts",
    "policy_update": "cooper_rl.training.step:update_policy",
    "policy_step": "cooper_rl.training.policy_update:apply_gradients",
    "pairs": "cooper_rl.training.pairing:PairMaker.make",
    "reward_update": "cooper_rl.training.reward_learner:update_verify_rm",
    "reward_step": "cooper_rl.training.reward_update:apply_gradients",
    "snapshot": "cooper_rl.checkpoints.writer:take_snapshot",
    "tokenizers": "cooper_rl.checkpoints.writer:save_tokenizers",
    "files": "cooper_rl.checkpoints.writer:write_snapshot",
    "weights": "cooper_rl.checkpoints.state:save_file",
    "log": "cooper_rl.checkpoints.state:write_piece",
    "remove": "cooper_rl.checkpoints.store:remove",
    "claim": "cooper_rl.checkpoints.store:claim",
    "upload": "cooper_rl.storage.local:LocalStore.put_file",
    "flush": "cooper_rl.storage.local:flush",
    "manifest": "cooper_rl.checkpoints.store:dump_manifest",
    "conditional_write": "cooper_rl.storage.local:LocalStore.write",
    "tidy": "cooper_rl.checkpoints.store:CheckpointStore._tidy",
    "delete": "cooper_rl.storage.local:LocalStore.delete",
    "s3_request": "cooper_rl.storage.s3:S3Store._request",
    "reference": "cooper_rl.stages.train_cooper:write_reference",
    "report": "cooper_rl.stages.train_cooper:write_report",
    "fit_backward": "cooper_rl.training.fitting.fit_verify_rm:_Data.backward",
    "fit_step": "cooper_rl.training.fitting.fit_verify_rm:apply_gradients",
    "fit_validation": "cooper_rl.training.fitting.fit_verify_rm:_Validation.check",
    "fit_best": "cooper_rl.stages.train_verify_rm:save_verify_rm",
    "fit_state": "cooper_rl.training.fitting.fit_verify_rm:write_fit",
    "fit_copy": "cooper_rl.run.fit_checkpoints:_copy_best",
    "fit_restore": "cooper_rl.training.fitting.fit_verify_rm:restore_fit",
    "fit_card": "cooper_rl.stages.train_verify_rm:write_card",
    "fit_report": "cooper_rl.stages.train_verify_rm:write_report",
    "fit_clear": "cooper_rl.run.fit_checkpoints:clear",
    "fit_remove": "cooper_rl.checkpoints.clearing:remove",
}
FIT_OVERRIDES = [
    "seed=2",
    "verify_rm.checkpoint_seconds=0",
    "verify_rm.batch_size=8",
    "verify_rm.num_epochs=2",
    "verify_rm.validate_every=1",
    "verify_rm.lr=1e-2",
    "verify_rm.scratch.vocab_size=300",
    "verify_rm.scratch.hidden_size=32",
    "verify_rm.scratch.num_layers=1",
    "verify_rm.scratch.num_heads=2",
    "verify_rm.scratch.num_matching_examples=16",
    "verify_rm.answer_spans=[8]",
    "verify_rm.num_decoys=1",
    "verify_rm.swapped_references=false",
    "verify_rm.num_canary_problems=0",
    "verify_rm.hostile_fraction=0",
    "verify_rm.optimizer=adamw",
]
"""Three lessons, with a state after every update. At this learning rate the best weights are not the last."""


def main() -> None:
    """Prepare the inputs where the folder has none, say so, then serve jobs until standard input ends."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    if not (folder / "models").exists():
        prepare(folder)
    assert S3Store  # imported before the first fork
    prepare_for_forks()
    print("ready", flush=True)  # noqa: T201 the protocol
    for line in sys.stdin:
        job = json.loads(line)
        counted = folder / "calls"
        counted.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            _run(job, counted, folder)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        calls = int(counted.read_text()) if counted.is_file() else None
        print(json.dumps({"status": status, "calls": calls}), flush=True)  # noqa: T201 the protocol


def prepare(folder: Path, *, hidden_size: int = 32) -> None:
    """Models, problems, VerifyRM: small, and the policy is right often enough that pairs are made."""
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    settings = tiny_config(tokenizer)
    settings.hidden_size = hidden_size
    model = Qwen2ForCausalLM(settings)
    policy = Policy(model, tokenizer, frozenset({tokenizer.eos_token_id}), tokenizer.pad_token_id)
    problems = generate_problems(NUM_PROBLEMS, 0)
    _teach(policy, problems)
    save_policy(policy, folder / "models" / "policy")
    models = ModelSet(policy="policy", samplers={"policy": "policy"}, backbone="policy")
    write_report(folder / "models" / "models.json", models)
    verify_rm = Qwen2ForSequenceClassification(tiny_config(tokenizer, num_labels=1)).eval()
    save_verify_rm(new_verify_rm(verify_rm, tokenizer, reads_added_words=True), folder / "verify_rm")
    write_records(folder / "problems.jsonl", problems)
    write_records(folder / "train.jsonl", label(0, 12))
    write_records(folder / "validation.jsonl", label(50, 3))


def label(start: int, count: int) -> list[VerifyExample]:
    """Sums with a right and a wrong completion each."""
    return [
        VerifyExample(
            question=f"What is {number}+1?",
            reference_answer=str(number + 1),
            completion=f"It is {number + right}.",
            label=right,
        )
        for number in range(start, start + count)
        for right in (0, 1)
    ]


def _teach(policy: Policy, problems: list[Problem]) -> None:
    """Each problem with its answer and with a wrong one, so that groups differ and pairs can be made."""
    rows: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    for number in range(2 * len(problems)):
        problem = problems[number // 2]
        prompt = policy.encode_prompt(problem.question, None)
        text = f"#### {int(problem.reference_answer) + number % 2}"
        answer = [*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id]
        rows.append(torch.tensor([*prompt, *answer]))
        targets.append(torch.tensor([-100] * len(prompt) + answer))
    input_ids = pad_sequence(rows, batch_first=True)  # padded on the right, where nobody looks back from
    labels = pad_sequence(targets, batch_first=True, padding_value=-100)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=5e-3)
    for _ in range(NUM_WARM_UP_UPDATES):
        policy.model(input_ids=input_ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    policy.model.eval()


def _run(job: dict[str, Any], counted: Path, folder: Path) -> None:
    """In the child; never returns."""
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO)
    warnings.simplefilter("error" if job.get("is_strict", True) else "default", CooperWarning)
    status = 0
    try:
        os.environ.update(job.get("environment", {}))
        tempfile.tempdir = None  # it was read before the fork
        arguments = {name: Path(path) for name, path in job["arguments"].items()}
        calls = install(job.get("kill", {}))
        if job.get("stage") == "train_verify_rm":
            inputs = {name: folder / f"{name}.jsonl" for name in ("train", "validation")}
            train_verify_rm.run(load("laptop", [*FIT_OVERRIDES, *job["overrides"]]), **(inputs | arguments))
        else:
            inputs = {name: folder / name for name in ("models", "verify_rm")}
            inputs["problems"] = folder / "problems.jsonl"
            train_cooper.run(load("laptop", [*OVERRIDES, *job["overrides"]]), **(inputs | arguments))
        if calls is not None:
            sys.setprofile(None)
            counted.write_text(str(calls[0]))
    except CooperError:
        traceback.print_exc()
        status = 2
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def install(kill: dict[str, Any]) -> list[int] | None:
    if "call" in kill or "count" in kill:
        return _count_calls(kill.get("call"), kill.get("signal", signal.SIGKILL))
    if "point" in kill:
        name = kill["point"]
        is_after = name.startswith("after ")
        _wrap(POINTS[name.removeprefix("after ")], kill["hit"], is_after, kill.get("signal", signal.SIGKILL))
    return None


def _count_calls(last: int | None, number: int) -> list[int]:
    calls = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls[0] += 1
            if calls[0] == last:
                os.kill(os.getpid(), number)

    threading.setprofile(count)
    sys.setprofile(count)
    return calls


def _wrap(place: str, hit: int, is_after: bool, number: int) -> None:
    module, _, path = place.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    function: Callable[..., Any] = getattr(holder, name)
    hits = [0]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        hits[0] += 1
        is_due = hits[0] == hit
        if is_due and not is_after:
            os.kill(os.getpid(), number)
        result = function(*arguments, **options)
        if is_due and is_after:
            os.kill(os.getpid(), number)
        return result

    setattr(holder, name, wrapped)


if __name__ == "__main__":
    main()
