"""Verdicts and labels through the public API, from wherever Python code runs."""

import asyncio
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psutil
import pytest

from cooper_rl import AnswerPolicy, LabelingConfig, RuleConfig, RuleVerifier, label, verify, verify_many
from cooper_rl.errors import DataError
from cooper_rl.tiny.judge import TinyJudge

# Algebra, which the worker processes do; and plain numbers, which they are not asked about.
ITEMS = [(r"\frac{x+1}{2}", rf"\boxed{{\frac{{1}}{{2}}x + \frac{{{n}}}{{2}}}}") for n in range(4)]
EXPECTED = ["incorrect", "correct", "incorrect", "incorrect"]


def verdicts(items=ITEMS) -> list[str]:
    return [check.verdict for check in verify_many(items)]


def children() -> set[int]:
    """Processes of this one that verify."""
    found = set()
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "cooper_rl.verdicts.worker" in child.cmdline():
                found.add(child.pid)
    return found


def test_one_and_many_give_the_same_verdicts_with_reasons() -> None:
    checks = verify_many(ITEMS)
    assert [check.verdict for check in checks] == EXPECTED
    assert [verify(*item) for item in ITEMS] == checks
    assert all(check.reason for check in checks)
    assert verify_many([]) == []


def test_threads_share_the_verifier() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: verdicts(), range(16))) == [EXPECTED] * 16


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_verify_before_and_after_the_parent_did(method: str) -> None:
    """A forked child has copies of the parent's sockets, whose replies would go to the wrong one."""
    verdicts()  # the parent's workers run
    with multiprocessing.get_context(method).Pool(2) as pool:
        fresh = [[(f"x+{n}", rf"\boxed{{{n}+x}}")] for n in range(6)]
        assert pool.map(verdicts, fresh) == [["correct"]] * 6
    assert verdicts([("y+1", r"\boxed{1+y}")]) == ["correct"]


def test_a_running_event_loop_may_call_it() -> None:
    async def ask() -> list[list[str]]:
        direct = verdicts()  # as a notebook's cell does
        return [direct, *await asyncio.gather(*(asyncio.to_thread(verdicts) for _ in range(3)))]

    assert asyncio.run(ask()) == [EXPECTED] * 4


def test_a_context_manager_ends_its_workers() -> None:
    before = children()
    with RuleVerifier(RuleConfig(num_workers=1, policy=AnswerPolicy(number_words=False))) as verifier:
        assert [check.verdict for check in verifier.verify(ITEMS)] == EXPECTED
        assert len(children() - before) == 1
    assert children() - before == set()


def test_workers_end_with_a_process_that_closed_nothing() -> None:
    """Also where a forked child outlived the calls, with the parent's sockets."""
    code = (
        "import os, time\n"
        "from cooper_rl import verify\n"
        f"assert verify(*{ITEMS[1]!r}).verdict == 'correct'\n"
        "from cooper_rl.api.verify import shared_verifier\n"
        "print(shared_verifier().pool.nursery.pid, flush=True)\n"
        "if os.fork() == 0:\n"
        "    time.sleep(1)\n"
        "    os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not psutil.pid_exists(int(done.stdout))


def test_a_question_and_a_cut_end_count() -> None:
    question = "3 times 4? (A) 7 (B) 12"
    assert verify("12", "The answer is B.", question=question).verdict == "correct"
    assert verify("12", "The answer is B.").verdict == "unparsable"
    assert verify("12", "The answer is 12", finish_reason="length").verdict == "unparsable"
    cut = ("12", "#### 12", "", "length")
    assert [check.verdict for check in verify_many([cut, ("12", "B", question)])] == ["unparsable", "correct"]
    rows = label([("q", "12", "#### 12")] * 2, finish_reasons=["length", "stop"])
    assert [row.label for row in rows] == [None, 1]
    with pytest.raises(DataError, match=r"finish_reasons: 1 for 2 items; give one for each"):
        label([("q", "12", "#### 12")] * 2, finish_reasons=["stop"])
    with pytest.raises(DataError, match=r"finish_reasons: 'cut' is none; write 'stop', 'length' or None"):
        label([("q", "12", "#### 12")], finish_reasons=["cut"])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "item",
    [
        *(("7", None), ("7",), (7, "7"), ("7", "7", "", "eos"), ("7",) * 5),
        *("77", {"reference_answer": "7", "completion": "7"}, None, 5),
    ],
)
def test_an_item_that_is_no_pair_of_strings_is_named(item) -> None:
    with pytest.raises(DataError, match=r"^item 1: .* is no pair of strings; give \(reference answer, "):
        verify_many([("7", "7"), item])


def test_the_judge_decides_where_the_rule_abstains() -> None:
    question = "Tom has 7 apples, gives away 2, doubles them. How many apples?"
    items = [(question, "10", text) for text in ("7-2=5;5*2=10. The answer is ten.", "#### 10", "#### 9")]
    config = LabelingConfig(rule=RuleConfig(num_workers=1, policy=AnswerPolicy(number_words=False)))
    alone = label(items, config=config)
    assert [row.label for row in alone] == [None, 1, 0]
    judged = label(items, config=config, judge=TinyJudge(0.0, 0))
    assert [row.label for row in judged] == [1, 1, 0]
    assert judged[0].rule == "unparsable"
    assert judged[0].reason == "rule_abstains_judge_decides"
    assert label([]) == []


def test_half_a_surrogate_pair_is_read_as_the_replacement_character() -> None:
    """In each text of an item; whole pairs are their character."""
    for texts in (
        ("1+1?\ud800", "2", "#### 2"),
        ("1+1?", "2\udc00", "#### 2"),
        ("1+1?", "2", "\ud800 #### 2"),
    ):
        mended = [text.replace("\ud800", "\ufffd").replace("\udc00", "\ufffd") for text in texts]
        found, expected = label([texts, tuple(mended)])
        assert found == expected
        checks = [verify(answer, text, question=question) for question, answer, text in (texts, mended)]
        assert checks[0] == checks[1]
        assert checks[0].verdict == found.rule
    assert label([("1+1?", "2", "\ud83d\ude00 #### 2")])[0].label == 1


def test_a_row_to_label_that_is_not_three_strings_is_named() -> None:
    with pytest.raises(DataError, match=r"^item 0: \('q', '1'\) is not three strings; give \(question, "):
        label([("q", "1")])


@pytest.mark.parametrize("item", ["abc", {"question": "q", "reference_answer": "1", "completion": "1"}, None])
def test_a_text_a_mapping_and_nothing_are_no_rows_to_label(item: Any) -> None:
    """A text would be read letter by letter, and a mapping by its keys."""
    with pytest.raises(DataError, match=r"^item 0: .* is not three strings; give \(question, "):
        label([item])
