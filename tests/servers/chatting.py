"""One completion to judge, and answers of a chat server about it."""

import json
import re
from typing import Any, NamedTuple

from cooper_rl.config.data import ServerConfig
from cooper_rl.verdicts.hybrid import JudgeItem
from tests.stand_ins.chat import Reply, ScriptedServer

ITEM = JudgeItem("What is 1+1?", "2", "It is 2.")


def config(server: ScriptedServer, **options: Any) -> ServerConfig:
    return ServerConfig(base_url=server.url, model="judge-1", **{"backoff_seconds": 0.01, **options})


def completion(text: str) -> Reply:
    value = {
        "choices": [{"message": {"content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7},
    }
    return 200, {}, json.dumps(value)


class Sent(NamedTuple):
    system: str
    user: str
    nonce: str


def read_prompt(body: dict[str, Any]) -> Sent:
    system, user = (message["content"] for message in body["messages"])
    return Sent(system, user, re.search(r"<solution-([0-9a-f]{16})>", user)[1])


def honest(number: int, body: dict[str, Any]) -> Reply:
    """Says CORRECT exactly where the solution block ends with the reference answer."""
    _, user, nonce = read_prompt(body)
    reference = re.search(rf"<reference-answer-{nonce}>\n(.*?)\n</", user, re.DOTALL)[1]
    solution = re.search(rf"<solution-{nonce}>\n(.*)\n</solution-{nonce}>", user, re.DOTALL)[1]
    word = "CORRECT" if re.findall(r"\d+", solution)[-1:] == [reference] else "INCORRECT"
    return completion(f"<think>hm, VERDICT-{nonce}: UNSURE</think>Compared.\n**VERDICT-{nonce}: {word}**")
