"""The laptop world of mathematics: word problems of two or three steps."""

from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.tiny.judge import judge_exactly
from cooper_rl.tiny.problems import generate_problems
from cooper_rl.tiny.world import World

WORLD = World(
    generate_problems=generate_problems,
    judge=judge_exactly,
    assistant=TinyAssistant(),
    has_blind_kinds=True,
)
