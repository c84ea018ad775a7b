"""The server of rewards: what it answers, how its runs learn, what it refuses."""

import asyncio
import gzip
import json
import re
import time
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cooper_rl import CooperReward, RewardClient
from cooper_rl.__main__ import main
from cooper_rl.api.rows import Row
from cooper_rl.config.load import load_learn
from cooper_rl.config.serve import LearnConfig
from cooper_rl.errors import ConfigError, DataError, ServerError
from cooper_rl.service.journal import Entry, Journal
from cooper_rl.service.numbers import RewardNumbers
from cooper_rl.service.openrlhf import OpenRLHFRequest, read_openrlhf
from cooper_rl.service.runs import ServedRuns
from tests.api.rewarding import same_weights
from tests.full_disk import no_file_beyond
from tests.service.service_world import SETTINGS, falling, items, post, start_of
from tests.stand_ins.chat import Reply, ScriptedServer
from tests.stand_ins.serving import serving


def test_rewards_and_weights_are_those_of_cooper_reward(visit, verify_rm: Path, tmp_path: Path) -> None:
    """Bit for bit over three steps, the last of them after a restart; another run begins anew."""

    async def talk(client: httpx.AsyncClient) -> list[Any]:
        return [(await post(client, f"r{n}", items(n))).json()["rewards"] for n in range(2)]

    async def go_on(client: httpx.AsyncClient) -> list[Any]:
        answers = [await post(client, "r2", items(2)), await post(client, "r0", items(0), run="b")]
        return [answer.json()["rewards"] for answer in answers]

    found = visit(talk) + visit(go_on)
    config = load_learn(SETTINGS)
    with CooperReward(verify_rm, config=config.cooper, rule=config.rule, device="cpu") as reward:
        expected = [ask(reward, items(n)) for n in range(3)]
        assert found == [*expected, expected[0]]
        with CooperReward(
            verify_rm,
            config=config.cooper,
            rule=config.rule,
            device="cpu",
            folder=tmp_path / "state" / "a" / "checkpoints",
        ) as served:
            assert served.step == 3
            assert served.pairs == reward.pairs
            assert same_weights(served.verify_rm, reward.verify_rm)


def ask(reward: CooperReward, batch: list[dict[str, str]]) -> list[float]:
    return reward(
        [item["completion"] for item in batch],
        questions=[item["question"] for item in batch],
        reference_answers=[item["reference_answer"] for item in batch],
        group_ids=[item["group"] for item in batch],
    )


def test_a_repeated_request_is_learned_from_once_and_answered_alike(visit) -> None:
    """Also while the first one is under way, in other order of arrival, and after a restart."""

    async def talk(client: httpx.AsyncClient) -> list[Any]:
        twice = await asyncio.gather(*(post(client, "one", items(1)) for _ in range(3)))
        await post(client, "two", items(2))
        return [answer.json() for answer in (*twice, await post(client, "one", items(1)))]

    async def again(client: httpx.AsyncClient) -> tuple[Any, Any]:
        answer = (await post(client, "one", items(1))).json()
        return answer, (await client.get("/v1/runs")).json()[0]["step"]

    found = visit(talk)
    repeated, step = visit(again)
    assert found == [repeated] * 4
    assert step == 2
    assert repeated["step"] == 0
    assert repeated["learned_by_step"] == 1


def test_a_request_id_cannot_stand_for_other_completions(visit) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await post(client, "one", items(1)), await post(client, "one", items(2))]

    first, second = visit(talk)
    assert first.status_code == 200
    assert second.status_code == 409
    assert "request_id='one': the run 'a' has answered it with other content" in second.json()["detail"]


def test_completions_that_come_one_by_one_are_one_step_when_enough_are_there(visit) -> None:
    """`collect_items` is 6. Rewards before that come from the untrained VerifyRM, those after it do not."""
    batch = items(1)

    async def talk(client: httpx.AsyncClient) -> tuple[list[Any], Any]:
        answers = [
            (await post(client, str(n), [item], learn="later")).json()
            for n, item in enumerate([*batch, batch[0]])
        ]
        return answers, (await client.get("/v1/runs")).json()[0]

    answers, run = visit(talk)
    assert [answer["learned_by_step"] for answer in answers] == [1] * 6 + [2] * 3
    assert [answer["step"] for answer in answers] == [0] * 6 + [1] * 3
    assert answers[8]["rewards"] != answers[0]["rewards"]
    assert (run["step"], run["collected_items"]) == (1, 3)
    assert run["metrics"]["pairs/positives"] == 2  # both problems, although no request held a group


def test_scoring_only_teaches_nothing(visit) -> None:
    async def talk(client: httpx.AsyncClient) -> list[Any]:
        names = ("one", "two")
        return [(await post(client, name, items(1), learn="never")).json() for name in names]

    one, two = visit(talk)
    assert one["rewards"] == two["rewards"]
    assert (two["step"], two["learned_by_step"]) == (0, None)


def test_staleness_is_told_where_pairs_may_be_a_step_late(visit) -> None:
    async def talk(client: httpx.AsyncClient) -> list[int]:
        return [(await post(client, str(n), items(n))).json()["staleness"] for n in range(3)]

    assert visit(talk, "cooper.pairs.max_staleness=1") == [0, 1, 1]


def test_openrlhf_is_answered_in_its_protocol(visit, verify_rm: Path) -> None:
    """The question is taken out of the chat template, end tokens are cut off the completion."""
    prompt = "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    body = {"query": [f"{prompt}It is 2.<|im_end|>\n"], "prompts": [prompt], "labels": ["2"]}

    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        plain = [{"question": "1 + 1?", "reference_answer": "2", "completion": "It is 2."}]
        wrong = body | {"prompts": ["1 + 1?"]}
        return [
            await client.post("/v1/runs/a/openrlhf", json=body),
            await post(client, "plain", plain, learn="never"),
            await client.post("/v1/runs/a/openrlhf", json=wrong),
            await client.post("/v1/runs/a/openrlhf", json=body | {"labels": []}),
            await client.post("/v1/runs/a/openrlhf", json={key: ["1 + 1?"] for key in body}),
            await client.post(
                "/v1/runs/a/openrlhf",
                content=json.dumps(body | {"query": [f"{prompt}\ud800 2"]}),
                headers={"content-type": "application/json"},
            ),
        ]

    pattern = r"question_pattern='(?s)<\|im_start\|>user\n(.*?)<\|im_end\|>'"
    ours, plain, wrong, short, other, half = visit(talk, pattern)
    assert ours.json() == {"rewards": plain.json()["rewards"], "scores": plain.json()["rewards"]}
    assert [answer.status_code for answer in (wrong, short, other, half)] == [400] * 4
    assert "query: value 0 does not begin with its prompt" in wrong.json()["detail"]
    assert "1, 1 and 0 values; each completion needs one of each" in short.json()["detail"]
    assert "prompts: value 0 does not match question_pattern=" in other.json()["detail"]
    assert "value 0 holds half a surrogate pair, which is no character; send U" in half.json()["detail"]


def test_a_completion_of_end_tokens_alone_holds_up_nobody() -> None:
    """980,000 characters take under a second; where each token is cut off in a copy, 36."""
    request = OpenRLHFRequest(query=["q" + ("</s>" + " " * 10) * 70_000], prompts=["q"], labels=["2"])
    started = time.monotonic()
    (row,) = read_openrlhf(request, LearnConfig())
    assert row.completion == ""
    assert time.monotonic() - started < 10


def test_openrlhfs_labels_may_be_numbers_and_its_tokenizer_may_compose_characters(visit) -> None:
    """As Qwen's does: OpenRLHF sends the prompt as the data set has it, and the query as decoded tokens."""
    decomposed, composed = "Cafe\u0301s: 1 + 1?", "Caf\u00e9s: 1 + 1?"

    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        sent = {"query": [f"{composed}It is 2."] * 2, "prompts": [decomposed] * 2, "labels": [2, 2.0]}
        plain = [{"question": composed, "reference_answer": "2", "completion": "It is 2."}]
        return [
            await client.post("/v1/runs/a/openrlhf", json=sent),
            await post(client, "plain", plain, learn="never"),
            await client.post("/v1/runs/a/openrlhf", json=sent | {"labels": [2, None]}),
        ]

    ours, plain, missing = visit(talk)
    assert ours.json()["rewards"] == pytest.approx(plain.json()["rewards"] * 2)
    assert missing.status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"query": ["1?2"] * 10}, 422, "at most 9 items"),
        ({"query": [0] * 100_000}, 422, "at most 9 items"),
        (
            {"query": ["1?" + "x" * 61]},
            400,
            "value 0 has 61 characters, and prompt, completion and label may",
        ),
        ({"labels": ["x" * 61]}, 400, "value 0 has 61 characters"),
    ],
)
def test_openrlhfs_requests_have_the_limits_of_all_others(visit, body: Any, status: int, said: str) -> None:
    whole = {"query": ["1?2"], "prompts": ["1?"], "labels": ["2"], **body}
    answer = visit(
        lambda client: client.post("/v1/runs/a/openrlhf", json=whole),
        "max_items_per_request=9",
        "max_chars_per_field=60",
    )
    assert answer.status_code == status
    assert said in answer.text
    assert len(answer.json()["detail"]) == 1 or status == 400


@pytest.mark.parametrize(
    ("batch", "more", "status", "said"),
    [
        ([], {}, 422, "at least 1 item"),
        (items(1), {"learn": "soon"}, 422, "'now', 'later' or 'never'"),
        ([{**items(1)[0], "question": ""}], {}, 422, "at least 1 character"),
        (
            [{**items(1)[0], "completion": "x" * 100}],
            {},
            422,
            "60 characters (max_chars_per_field of the server)",
        ),
        (items(1, size=6), {}, 422, "not 12 (max_items_per_request of the server)"),
        ([{**item, "group": "g"} for item in items(1)], {}, 400, "'g' stands for two problems"),
        (items(1), {"run": "../b"}, 404, "Not Found"),
        (items(1), {"run": "B"}, 400, "run 'B': a name has 1 to 63 characters a-z"),
        (items(1), {"run": "lock"}, 400, "digits at both ends, and is not 'lock'"),
        (items(1), {"run": "c"}, 409, "the server keeps max_runs=1 already: a; use one of them"),
    ],
)
def test_what_does_not_fit_is_refused(visit, batch: Any, more: Any, status: int, said: str) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        assert (await post(client, "good", items(0, size=1))).status_code == 200
        return await post(client, "bad", batch, **more)

    answer = visit(talk, "max_items_per_request=9", "max_chars_per_field=60", "max_runs=1")
    assert answer.status_code == status
    assert said in answer.text


def test_a_completion_of_a_long_reasoning_is_no_reason_to_end_a_training(visit) -> None:
    batch = [{**items(1)[0], "completion": "So. " * 200_000 + "#### 1"}]
    assert visit(lambda client: post(client, "long", batch)).status_code == 200


def test_completions_one_by_one_need_the_size_of_a_step(visit) -> None:
    answer = visit(lambda client: post(client, "one", items(1), learn="later"), "collect_items=null")
    assert answer.status_code == 409
    assert "start it with --set collect_items=COUNT" in answer.json()["detail"]


def test_a_full_queue_is_answered_429_and_says_when_to_come_back(visit) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(post(client, str(n), items(n)) for n in range(6)))

    answers = visit(talk, "max_waiting_items=16", "max_items_per_request=8")
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 4
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert "8 completions wait and at most 16 may" not in refused[0].text
    assert "16 completions wait and at most 16 may" in refused[0].text


def test_a_run_that_the_monitor_stopped_stays_stopped(visit) -> None:
    """The answer of that step was sent before VerifyRM learned; the next request hears of it, also after a
    restart. The rewards are a random VerifyRM's: rule accuracy falls from 1 to 0 while they hardly change."""
    monitor = "cooper.monitor={ window = 2, max_gap_rise = 0.01, num_anchors = 0, action = 'stop' }"

    async def talk(client: httpx.AsyncClient) -> list[Any]:
        answers = [await post(client, f"r{n}", falling(n)) for n in range(12)]
        return [answers, (await client.get("/v1/runs")).json()[0]["stopped"]]

    async def again(client: httpx.AsyncClient) -> httpx.Response:
        return await post(client, "new", falling(1))

    answers, stopped = visit(talk, monitor)
    statuses = [answer.status_code for answer in answers]
    assert statuses == [200] * statuses.count(200) + [409] * statuses.count(409)
    assert "the monitor found reward hacking at step" in stopped
    assert answers[-1].json()["detail"] == stopped
    after = visit(again, monitor)
    assert after.status_code == 409
    assert "the monitor found reward hacking at step" in after.json()["detail"]


def test_a_run_that_has_stopped_does_not_count_as_stuck(visit) -> None:
    """An orchestrator that starts the server again would end all other runs too."""
    monitor = "cooper.monitor={ window = 2, max_gap_rise = 0.01, num_anchors = 0, action = 'stop' }"

    async def talk(client: httpx.AsyncClient) -> tuple[str, httpx.Response]:
        for n in range(12):
            await post(client, f"r{n}", falling(n))
        await asyncio.sleep(0.3)
        stopped = (await client.get("/v1/runs")).json()[0]["stopped"]
        return stopped, await client.get("/healthz")

    stopped, health = visit(talk, monitor, "stuck_seconds=0.2")
    assert "the monitor found reward hacking at step" in stopped
    assert (health.status_code, health.text) == (200, "ok")


def test_a_folder_serves_one_server_at_a_time(visit, verify_rm: Path, tmp_path: Path) -> None:
    start = start_of(verify_rm, tmp_path / "state")

    async def talk(client: httpx.AsyncClient) -> None:
        with pytest.raises(DataError, match=r"state: another server uses this folder; end it"):
            ServedRuns(start, LearnConfig(), RewardNumbers())

    visit(talk)


def test_folders_of_others_are_no_runs_and_too_many_runs_are_refused(verify_rm: Path, tmp_path: Path) -> None:
    start = start_of(verify_rm, tmp_path / "state")
    for name in ("lost+found", ".snapshot"):
        (tmp_path / "state" / name).mkdir(parents=True)
    config = load_learn([*SETTINGS, "max_runs=1"])
    runs = ServedRuns(start, config, RewardNumbers())
    assert runs.all() == []
    runs.close(seconds=1)
    for name in ("a", "b"):
        (tmp_path / "state" / name).mkdir()
    with pytest.raises(DataError, match=r"has 2 runs \(a, b\) and max_runs=1; move folders away, or raise"):
        ServedRuns(start, config, RewardNumbers())
    assert not list((tmp_path / "state").glob("*/*"))


def test_a_judge_that_goes_away_between_answers_and_their_step_is_waited_for(
    visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rewards both halves, two items each, and is away once when the step of all four is scored."""
    monkeypatch.setattr("cooper_rl.service.run.JUDGE_PAUSE_SECONDS", 0.2)

    def answer(number: int, body: dict[str, Any]) -> Reply:
        code = re.search(r"VERDICT-([0-9a-f]+)", json.dumps(body))
        assert code is not None
        if 4 <= number < 8:
            return 503, {}, b"{}"
        said = json.dumps({"choices": [{"message": {"content": f"VERDICT-{code[1]}: CORRECT"}}]})
        return 200, {}, said.encode()

    judge = ScriptedServer(answer)

    async def talk(client: httpx.AsyncClient) -> list[Any]:
        for half in range(2):
            batch = items(half, size=2)[:2]
            assert (await post(client, f"half {half}", batch, learn="later")).status_code == 200
        again = await post(client, "more", items(7, size=2)[:2], learn="later")
        return [again.status_code, (await client.get("/v1/runs")).json()[0]]

    try:
        status, run = visit(
            talk, "collect_items=4", "cooper.reward.kind=judge", "cooper.monitor=null",
            f"cooper.judge.server.base_url={judge.url}/v1", "cooper.judge.server.model=m",
            "cooper.judge.server.max_attempts=1",
        )  # fmt: skip
    finally:
        judge.close()
    assert (status, run["stopped"], run["step"]) == (200, None, 1)


def test_a_damaged_journal_stops_its_run_alone(visit, tmp_path: Path) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await post(client, "one", items(1), run=run) for run in ("a", "b")]

    assert [answer.status_code for answer in visit(talk)] == [200, 200]
    journal = tmp_path / "state" / "a" / "journal.jsonl"
    journal.write_bytes(b"{}\n" + journal.read_bytes())
    damaged, whole = visit(talk)
    assert (damaged.status_code, whole.status_code) == (409, 200)
    assert "journal.jsonl:1: not a line of the journal" in damaged.json()["detail"]


def test_a_lost_checkpoint_is_named(visit, tmp_path: Path) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await post(client, str(n), items(n)) for n in range(6)]

    visit(talk)
    (tmp_path / "state" / "a" / "checkpoints").rename(tmp_path / "away")

    async def again(client: httpx.AsyncClient) -> httpx.Response:
        return await post(client, "new", items(1))

    answer = visit(again)
    assert (
        "the journal goes on with step 5 and the newest checkpoint ends at step 0" in answer.json()["detail"]
    )


def entry(name: str, step: int | None, *, size: int = 2) -> Entry:

    rows = tuple(Row("q", "1", f"{name} {n}", None) for n in range(size)) if step else ()
    return Entry(name, "digest", (0.5,) * size, 0, 0, step, True, rows)


def test_the_journal_keeps_rows_that_are_not_learned_and_the_newest_answers(tmp_path: Path) -> None:
    """Ten rewards may be kept: of 16 the three oldest requests with two each are forgotten."""
    journal = Journal(tmp_path, kept_rewards=10)
    journal.append([entry(str(n), n) for n in range(1, 8)] + [entry("scored", None)])
    journal.compact(6)
    journal.close()
    again = Journal(tmp_path, kept_rewards=10)
    assert [(found.id, len(found.rows)) for found in again.unlearned] == [("7", 2)]
    assert [name for name in "1234567" if again.find(name)] == ["4", "5", "6", "7"]
    assert again.find("scored") == entry("scored", None)
    again.close()


def test_a_torn_last_line_was_never_answered(tmp_path: Path) -> None:
    journal = Journal(tmp_path, kept_rewards=10)
    journal.append([entry("1", 1), entry("2", 2)])
    journal.close()
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    again = Journal(tmp_path, kept_rewards=10)
    assert [found.id for found in again.unlearned] == ["1"]
    again.append([entry("2", 2)])
    again.close()
    assert path.read_bytes() == whole


def test_a_disk_that_is_full_loses_no_answer(tmp_path: Path) -> None:
    journal = Journal(tmp_path, kept_rewards=10)
    journal.append([entry("1", 1)])
    size = (tmp_path / "journal.jsonl").stat().st_size
    refusal = pytest.raises(DataError, match=r"journal.jsonl: cannot be written .*free space on its disk")
    with no_file_beyond(size + 40), refusal:
        journal.append([entry("2", 2)])
    assert (tmp_path / "journal.jsonl").stat().st_size == size
    assert journal.find("2") is None
    journal.append([entry("2", 2)])
    journal.close()
    assert [found.id for found in Journal(tmp_path, kept_rewards=10).unlearned] == ["1", "2"]


def test_the_command_refuses_what_cannot_be_served(
    verify_rm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["serve", "--learn", "--verify-rm", str(verify_rm), "--state", str(tmp_path)]
    assert main([*common, "--set", "cooper.reward.rate=1"]) == 2
    assert "reward.rate" in capsys.readouterr().err
    assert main([*common, "--set", "cooper.group_size=4"]) == 2
    assert "group_size: not read by a reward" in capsys.readouterr().err
    assert main([*common, "--set", "max_batch=4"]) == 2
    assert "max_batch: unknown key" in capsys.readouterr().err
    for pattern, said in (
        ("user (.*", "no regular expression: missing )"),
        ("user .*", "has no group: put parentheses round"),
    ):
        assert main([*common, "--set", f"question_pattern='{pattern}'"]) == 2
        assert said in capsys.readouterr().err
    assert main([*common, "--set", 'end_tokens=["</s>", ""]']) == 2
    assert "end_tokens" in capsys.readouterr().err
    assert main(["serve", "--learn", "--verify-rm", str(tmp_path), "--state", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.fixture
def flaky() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that refuses three times before it answers; what it was sent."""

    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if len(seen) == 1:
                self.connection.close()
                return
            self.send_response({2: 429, 3: 503}.get(len(seen), 200))
            self.send_header("retry-after", "0")
            self.end_headers()
            answer = {"rewards": [0.5], "request_id": seen[-1]["request_id"]}
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url, seen


def test_the_client_asks_again_with_the_same_id(flaky: tuple[str, list[dict[str, Any]]]) -> None:
    url, seen = flaky
    client = RewardClient(url)
    assert client(["2"], questions=["1+1?"], reference_answers=["2"], group_ids=[7]) == [0.5]
    assert len(seen) == 4
    assert seen == [seen[0]] * 4
    assert seen[0]["items"][0]["group"] == "7"
    client.close()


def test_the_client_takes_group_ids_of_numpy_and_refuses_none_for_some(flaky) -> None:
    url, seen = flaky
    client = RewardClient(url)
    texts = {"questions": ["1+1?"], "reference_answers": ["2"]}
    assert client(["2"], **texts, group_ids=np.array([7])) == [0.5]  # pyright: ignore[reportArgumentType]
    assert seen[0]["items"][0]["group"] == "7"
    with pytest.raises(DataError, match="group_ids: 0 values for 1 completions"):
        client(["2"], **texts, group_ids=[])
    client.close()


def test_the_client_sends_the_replacement_character_for_half_a_surrogate_pair(flaky) -> None:
    url, seen = flaky
    client = RewardClient(url)
    assert client(["2\ud800"], questions=["1+1?\ud800"], reference_answers=["2\ud800"], group_ids=["\ud800"])
    expected = {
        "completion": "2\ufffd",
        "question": "1+1?\ufffd",
        "reference_answer": "2\ufffd",
        "group": "\ufffd",
    }
    assert seen[0]["items"] == [expected]
    client.close()


def test_the_client_unpacks_no_answer_whole_that_is_larger_than_rewards_can_be() -> None:
    """50 MB of zeros in 50 KB of gzip: one reward of 64 bytes and 1 MiB to spare are the bound."""
    bomb = gzip.compress(bytes(50_000_000))
    server = ScriptedServer(lambda number, body: (200, {"content-encoding": "gzip"}, bomb))
    client = RewardClient(server.url, retry_seconds=0)
    tracemalloc.start()
    try:
        with pytest.raises(ServerError, match=r"the last try: ReadError: the answer has over 1048640 bytes"):
            client(["2"], questions=["1+1?"], reference_answers=["2"])
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
        client.close()
        server.close()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            (200, {}, "<html>log in</html>"),
            r"answers as no server of rewards does, with '<html>log in</html>'",
        ),
        ((200, {}, "[1, 2]"), r"answers as no server of rewards does, with '\[1, 2\]'; check the address"),
        ((200, {}, '{"rewards": [1, 0]}'), r"gave 2 rewards for 1 completions"),
        (
            (302, {"location": "https://login.example/?a=b"}, ""),
            r"302, a redirection to https://login.example/",
        ),
    ],
)
def test_the_client_names_an_answer_that_is_none_of_the_servers(reply: Reply, message: str) -> None:
    server = ScriptedServer(lambda number, body: reply)
    client = RewardClient(server.url)
    with pytest.raises(ServerError, match=message):
        client(["2"], questions=["1+1?"], reference_answers=["2"])
    client.close()
    server.close()


def test_the_client_says_at_once_that_the_server_is_away(caplog: pytest.LogCaptureFixture) -> None:
    client = RewardClient("http://127.0.0.1:9", retry_seconds=1.5)
    with pytest.raises(ServerError, match=r"no answer in retry_seconds=1\.5"):
        client(["2"], questions=["1+1?"], reference_answers=["2"])
    (said,) = caplog.messages
    assert said.startswith("http://127.0.0.1:9/v1/runs/default/rewards: ConnectError")
    assert said.endswith("asking again (retry_seconds=1.5)")
    client.close()


def test_the_client_gives_up_and_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = RewardClient("http://127.0.0.1:9", retry_seconds=0)
    began = time.monotonic()
    with pytest.raises(
        ServerError, match=r"127.0.0.1:9/v1/runs/default/rewards: no answer in retry_seconds=0"
    ):
        client(["2"], questions=["1+1?"], reference_answers=["2"])
    assert time.monotonic() - began < 5
    assert client([], questions=[], reference_answers=[]) == []
    monkeypatch.delenv("COOPER_REWARD_URL", raising=False)
    with pytest.raises(ConfigError, match="COOPER_REWARD_URL is not set"):
        RewardClient.from_environment()
    monkeypatch.setenv("COOPER_REWARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("COOPER_REWARD_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"COOPER_REWARD_TOKEN_FILE=.*none: holds no token"):
        RewardClient.from_environment()
