"""What benchmarks of a step have in common: problems, models, pairs, the clock."""

import argparse
import itertools
import math
import random
import string
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from cooper_rl.models.policy import Policy, save_policy
from cooper_rl.models.verify_rm import new_verify_rm, save_verify_rm
from cooper_rl.records.files import write_report
from cooper_rl.records.model_set import MANIFEST
from cooper_rl.schema.data import Pairing, PreferencePair, Problem
from cooper_rl.schema.reports import ModelSet
from cooper_rl.tiny.problems import generate_stories
from cooper_rl.tiny.tokenizer import build_tokenizer
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.rollout import Group, Scores

NUM_PROBLEMS, GROUP_SIZE = 16, 8
MEAN_LENGTH = 96
MAX_LENGTH = 2048
"""Positions of the models."""
VLLM_MEMORY = 0.3
"""Share of the GPU for the vLLM of each side; TRL's default."""


class Measured(NamedTuple):
    """One step of one side."""

    seconds: dict[str, float]
    """By phase, `step` is the whole."""
    num_tokens: int
    """Drawn."""
    layer_tokens: int = 0
    """Positions through the layers of policy and reference policy, in forward passes of the update."""
    head_tokens: int = 0
    """Those through the head."""


class Clock(NamedTuple):
    """Seconds that pass on a device."""

    device: torch.device

    def __call__(self) -> float:
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def make_problems(count: int, num_stories: int) -> list[Problem]:
    """Each of so many stories of about 25 tokens."""
    stories = generate_stories(count * num_stories, random.Random(0))
    questions = [
        " ".join(story.question for story in stories[start : start + num_stories])
        for start in range(0, len(stories), num_stories)
    ]
    return [
        Problem(id=str(place), source="benchmark", question=question, reference_answer=str(place))
        for place, question in enumerate(questions)
    ]


def make_tokenizer(vocab_size: int) -> Any:
    """The laptop world's, with a text of four characters for every token that it lacks to so many."""
    tokenizer = build_tokenizer()
    letters = itertools.product(string.ascii_letters + string.digits, repeat=3)
    names = itertools.islice(letters, max(0, vocab_size - len(tokenizer)))
    tokenizer.add_tokens(["~" + "".join(name) for name in names])
    return tokenizer


def make_models(folder: Path, options: argparse.Namespace) -> None:
    """Random policy and VerifyRM of the same size, in the folders that the stages read."""
    tokenizer = make_tokenizer(options.vocab)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": options.hidden, "intermediate_size": 4 * options.hidden,
        "num_hidden_layers": options.layers, "num_attention_heads": options.hidden // 64,
        "num_key_value_heads": max(1, options.hidden // 128), "max_position_embeddings": MAX_LENGTH,
        "bos_token_id": None, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    policy = Qwen2ForCausalLM(Qwen2Config(**sizes))
    policy.generation_config.eos_token_id = tokenizer.eos_token_id
    policy.generation_config.do_sample = True
    set_end_probability(policy, tokenizer.eos_token_id, 0.0 if options.fixed else 1 / MEAN_LENGTH)
    end_ids = frozenset({tokenizer.eos_token_id})
    save_policy(Policy(policy, tokenizer, end_ids, tokenizer.pad_token_id), folder / "policy")
    verify_rm = Qwen2ForSequenceClassification(Qwen2Config(**sizes, num_labels=1))
    save_verify_rm(new_verify_rm(verify_rm, tokenizer, reads_added_words=True), folder / "verify_rm")
    write_report(folder / MANIFEST, ModelSet(policy="policy", samplers={}, backbone="policy"))


@torch.no_grad()
def set_end_probability(model: Any, end_id: int, probability: float) -> None:
    """Give every hidden state a constant first entry, which the end token's logit alone reads."""
    model.model.embed_tokens.weight[:, 0] = 1.0
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
    constant = model.model(torch.arange(50)[None]).last_hidden_state[0, :, 0].mean().item()
    model.lm_head.weight[:, 0] = 0.0
    odds = probability / (1 - probability)
    logit = math.log(odds * (model.config.vocab_size - 1)) if odds else -100.0
    model.lm_head.weight[end_id, 0] = logit / constant


def pair_of(problem: Problem, positive: str, negative: str) -> PreferencePair:
    return PreferencePair(
        step=1, problem_id=problem.id, question=problem.question, source="benchmark",
        reference_answer=problem.reference_answer, positive=positive, negative=negative,
    )  # fmt: skip


class RolloutPairs(PairQueue):
    """Two rollouts of every problem, whatever they say: random text is never correct."""

    def submit(self, groups: Sequence[Group], scores: Scores, *, step: int, seed: int) -> None:
        self._pairs = [pair_of(group.problem, *group.texts[:2]) for group in groups]

    def take(self) -> Pairing:
        return Pairing(pairs=self._pairs)
