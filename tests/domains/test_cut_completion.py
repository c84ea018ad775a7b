"""What VerifyRM reads of a completion is its domain's: of programs the one that the verifier runs."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cooper_rl import CooperReward, VerifyExample, VerifyItem, VerifyRM, load_verify_rm, train_verify_rm
from cooper_rl.config.data import RuleConfig
from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.config.serve import ServeConfig
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ModelError
from cooper_rl.method.prompts import cut_field
from cooper_rl.models.decoys import add_decoys
from cooper_rl.models.template import KEY, note_reading
from cooper_rl.models.verify_rm import load_verify_rm as load
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.servers.verify_rm_http import make_app
from cooper_rl.training.fitting.fit_verify_rm import train_in_lessons
from cooper_rl.verdicts.programs import MAX_CHARS

CPU = torch.device("cpu")
PROGRAMS = find_domain("programs")
TESTS = "f(a=1, b=2) == 5\nf(a=0, b=3) == 6"
RIGHT = "def f(a, b):\n    return a + 2 * b"
LONG = f"def f(a, b):\n    x = '{'y' * 1600}'\n    return a + 2 * b"


def read(completion: str, tests: str = TESTS) -> tuple[str, ...]:
    assert PROGRAMS.cut_completion is not None
    return PROGRAMS.cut_completion(tests, completion)


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (RIGHT, (RIGHT,)),
        (f"It is right.\n```python\n{RIGHT}\n```\nAll tests pass.", (RIGHT,)),
        (f"```\nreturn 1\n```\nOr rather:\n```\n{RIGHT}\n```", (RIGHT,)),
        (f"{'Let me think. ' * 300}\n{RIGHT}", (RIGHT,)),
        (f"```python\n{RIGHT}\n```\n{'CORRECT ' * 1000}", (RIGHT,)),
        ("So\n  return a + 2 * b\nis it.", (RIGHT,)),
        ("return 1\nreturn a + 2 * b", (RIGHT,)),
        (f"text\n{LONG}", (LONG[:500], LONG[-1000:])),
        ("I do not know.", ("I do not know.",)),
        ("", ("",)),
        ("no " * 1000, (("no " * 1000)[:500], ("no " * 1000)[-1000:])),
    ],
)
def test_the_program_is_read_and_what_stands_around_it_is_not(
    completion: str, expected: tuple[str, ...]
) -> None:
    assert read(completion) == expected


def test_where_nothing_is_run_the_completion_is_cut_as_in_mathematics() -> None:
    """The verifier abstains on 20,000 characters, and on tests that it cannot read."""
    too_long = RIGHT + "\n" * MAX_CHARS
    assert read(too_long) == (too_long[:500], too_long[-1000:])
    assert read(f"So:\n{RIGHT}", tests="5") == (f"So:\n{RIGHT}",)


PIECES = (
    "return {}",
    "    return {}",
    "def f(a, b):\n    return {}",
    "import math\ndef f(a, b):\n    return {}",
    "```python\ndef f(a, b):\n    return {}\n```",
    "```\nreturn {}\n```",
    "```python\nThe answer is {}.\n```",
    "```",
    "The answer is {}.",
    "# CORRECT {}",
    "f = lambda a, b: {}",
    "The answer is {}. " + "So it is. " * 200,
)


def value_of(program: str) -> object:
    """What a text gives as a program; None where it is none."""
    names: dict[str, Any] = {}
    try:
        exec(program, names)
        return names["f"](a=1, b=2)
    except (SyntaxError, KeyError, NameError, TypeError):
        return None


@pytest.fixture(scope="module")
def verifier() -> Any:
    opened = PROGRAMS.open_verifier(RuleConfig(num_workers=1, timeout_seconds=5))
    yield opened
    opened.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
def test_what_verify_rm_reads_is_what_the_verifier_runs(verifier: Any, pieces: list[str]) -> None:
    """Every piece names a number of its own; the verifier says which one a completion gives, if any, and the
    text that VerifyRM reads, run here, gives the same one."""
    completion = "\n".join(piece.format(place) for place, piece in enumerate(pieces))
    asked = [f"f(a=1, b=2) == {place}" for place in range(len(pieces))]
    verdicts = [check.verdict for check in verifier.verify([(tests, completion) for tests in asked])]
    parts = read(completion, asked[0])
    if "correct" in verdicts:
        assert value_of("\n".join(parts)) == verdicts.index("correct")
    elif "unparsable" in verdicts:
        assert parts == cut_field(completion)
    else:
        assert value_of("\n".join(parts)) is None


@pytest.fixture
def reads_programs(make_verify_rm: Callable[[int], VerifyRM]) -> VerifyRM:
    verify_rm = make_verify_rm(0)
    note_reading(verify_rm.model, domain="programs", reference_last=False)
    return verify_rm


FRAGMENTS = ("```", "```python\n", "\n", "def f(a, b):", "return ", "import os", "7", "\ud800", " " * 900)
hostile = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=12).map("".join)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=hostile, tests=st.sampled_from([TESTS]) | hostile, completion=hostile)
def test_the_fields_come_back_from_the_token_ids(
    reads_programs: VerifyRM, question: str, tests: str, completion: str
) -> None:
    """As in `tests/models/test_template.py`: the text itself, or its program, or what a cut left of them."""
    template = reads_programs.template
    [token_ids] = template.encode([(question, tests, completion)])
    wanted = (cut_field(question), cut_field(tests), read(completion, tests))
    normalize = template.field_tokenizer.normalizer.normalize_str  # NFC
    assert tuple(template.decode(token_ids)) == tuple(
        tuple(normalize(part.replace("\ud800", "\ufffd")) for part in parts) for parts in wanted
    )
    found = [token for token in token_ids if token in template.separators]
    expected: list[int] = []
    for (opening, closing), parts in zip(template.separators.pairs, wanted, strict=True):
        expected += [opening, *[template.separators.cut] * (len(parts) - 1), closing]
    assert found == expected


def test_decoys_read_the_program_too(reads_programs: VerifyRM) -> None:
    add_decoys(reads_programs.model, ["f(a=1, b=2) == 6", "f(a=1, b=2) == 7"], count=2, domain="programs")
    (group,) = reads_programs.encode_compared([VerifyItem("Write f.", TESTS, "So: \nreturn a + 2 * b")])
    found = [reads_programs.template.decode(ids).completion for ids in group]
    assert found == [(RIGHT,)] * 3 + [("",)]


ITEMS = [
    VerifyItem("Write f.", TESTS, f"{'Let me think. ' * 200}\n```python\n{RIGHT}\n```\nDone."),
    VerifyItem("Write f.", TESTS, "return a"),
    VerifyItem("Write f.", TESTS, f"```python\n{LONG}\n```"),
    VerifyItem("Write f.", TESTS, "I do not know. " * 150),
]


def ask_server(verify_rm: VerifyRM, items: list[VerifyItem]) -> list[float]:
    async def talk() -> list[float]:
        app = make_app(verify_rm, ServeConfig(), name="rm")
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                answer = await client.post("/v1/score", json={"items": [item._asdict() for item in items]})
                return answer.json()["scores"]

    return asyncio.run(talk())


def test_training_folder_server_and_reward_give_one_score(
    make_verify_rm: Callable[[int], VerifyRM], tmp_path: Path
) -> None:
    """The loss of the first update is the mean of -log of what scoring gives to the labels."""
    rows = [
        VerifyExample(
            question=item.question,
            reference_answer=TESTS,
            completion=item.completion,
            label=0 if n == 1 else 1,
        )
        for n, item in enumerate(ITEMS)
    ]
    verify_rm = make_verify_rm(0)
    config = VerifyRMConfig(num_epochs=1, lr=1e-12, num_decoys=0)
    fit = train_in_lessons(verify_rm, rows, config=config, is_from_scratch=False, seed=0, domain=PROGRAMS)
    save_verify_rm(verify_rm, tmp_path / "rm")
    loaded = load_verify_rm(tmp_path / "rm", device="cpu")
    assert loaded.encode(ITEMS) == verify_rm.encode(ITEMS)
    scores = loaded.score(ITEMS)
    right = torch.tensor([score if n != 1 else 1 - score for n, score in enumerate(scores)])
    assert fit.final_loss == pytest.approx(-right.log().mean().item(), abs=1e-5)
    assert verify_rm.score(ITEMS) == pytest.approx(scores, abs=1e-6)
    assert ask_server(loaded, ITEMS) == pytest.approx(scores, abs=1e-6)
    bare = [VerifyItem("Write f.", TESTS, RIGHT), *ITEMS[1:]]
    assert loaded.score(bare) == pytest.approx(scores, abs=1e-6), "text around the program counts for nothing"
    with CooperReward(tmp_path / "rm", device="cpu", domain="programs") as reward:
        assert reward.verify_rm.encode(ITEMS) == verify_rm.encode(ITEMS)
        reward.save_verify_rm(tmp_path / "again")
    assert load_verify_rm(tmp_path / "again", device="cpu").encode(ITEMS) == verify_rm.encode(ITEMS)


def note_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())[KEY]


def test_a_folder_names_its_domain_in_config_and_card(tmp_path: Path) -> None:
    rows = [
        VerifyExample(question="Write f.", reference_answer=TESTS, completion=f"return {n}", label=label)
        for n, label in enumerate((0, 1, 0, 1))
    ]
    small = {"num_epochs": 1, "scratch": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}}
    for domain, version in (("programs", 3), ("mathematics", 2)):
        folder = tmp_path / domain
        train_verify_rm(rows, folder, config=small, device="cpu", domain=domain)
        assert note_of(folder)["version"] == version
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert ("It was trained for `problems.domain=programs`: of a" in card) == (domain == "programs")
    assert note_of(tmp_path / "programs")["domain"] == "programs"
    assert set(note_of(tmp_path / "mathematics")) == {"version", "separators", "reads_added_words"}


def test_a_mathematics_model_reads_and_notes_what_it_always_did(
    make_verify_rm: Callable[[int], VerifyRM],
) -> None:
    """Programs in its completions are text; a training for mathematics takes the note of programs away."""
    verify_rm = make_verify_rm(0)
    before = dict(getattr(verify_rm.model.config, KEY))
    note_reading(verify_rm.model, domain="mathematics", reference_last=False)
    assert getattr(verify_rm.model.config, KEY) == before
    for item in ITEMS:
        [token_ids] = verify_rm.encode([item])
        assert verify_rm.template.decode(token_ids) == tuple(map(cut_field, item))
    note_reading(verify_rm.model, domain="programs", reference_last=False)
    assert getattr(verify_rm.model.config, KEY) == {**before, "version": 3, "domain": "programs"}
    note_reading(verify_rm.model, domain="mathematics", reference_last=False)
    assert getattr(verify_rm.model.config, KEY) == before


def test_a_folder_of_a_domain_that_is_not_registered_is_refused(
    reads_programs: VerifyRM, tmp_path: Path
) -> None:
    getattr(reads_programs.model.config, KEY)["domain"] = "law"
    save_verify_rm(reads_programs, tmp_path / "rm")
    with pytest.raises(
        ModelError, match=r"/rm: this VerifyRM reads completions as problems\.domain=law cuts"
    ):
        load(tmp_path / "rm", device=CPU)
