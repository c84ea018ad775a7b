"""A run's files in, one page and one summary out."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from PIL import Image

from cooper_rl.config.load import load
from cooper_rl.errors import DamagedObjectError, DataError
from cooper_rl.method.metrics import binary_scores, confusion_counts
from cooper_rl.records.files import read_records, read_report, write_records, write_report
from cooper_rl.report.page import settings
from cooper_rl.report.samples import PAIRS_PER_CHANGE
from cooper_rl.schema.data import EvaluatedCompletion
from cooper_rl.schema.red_team import AttackText, CurvePoint, RedTeamReport
from cooper_rl.schema.reports import EvaluateVerifyRMReport, Interval, LabelReport, RunReport, SourceScores
from cooper_rl.stages import report
from tests.stages.run_files import COMPLETIONS, make_completion, make_evaluation, make_metrics, write_run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} $\\frac{1}$ & \"quoted\" 'text'"


def make_report(
    folder: Path, *overrides: str, frozen: dict[str, Path] | None = None, **changes
) -> tuple[str, str, RunReport]:
    paths = write_run(folder, **changes) | (frozen or {})
    outputs = {name: folder / "out" / name for name in ("page", "summary", "report")}
    result = report.run(load("laptop", overrides), **paths, **outputs)
    assert read_report(outputs["report"], RunReport) == result
    return outputs["page"].read_text(), outputs["summary"].read_text(), result


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run in which nothing is special."""
    page, _, _ = make_report(tmp_path_factory.mktemp("run"))
    return page


class _Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "br", "img", "link"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_one_small_file_with_one_script_and_nothing_from_elsewhere(html: str):
    page = _Page(html)
    assert len(html.encode()) < 1_000_000
    assert_nothing_but_our_script(html)
    assert page.tags.count("svg") == page.tags.count("figure") == 16
    assert '<meta name="viewport"' in html
    assert "prefers-color-scheme: dark" in html


def assert_nothing_but_our_script(html: str) -> None:
    """The page's one script is the package's, its policy names that script's hash and allows nothing else to
    be fetched or run, and no attribute leads out of the page."""
    page = _Page(html)
    assert page.tags.count("script") == 1
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    script = (resources.files("cooper_rl") / "report" / "page.js").read_text()
    assert f"<script>{script}</script>" in html
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(value for name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{hashed}'; ")
    assert "http" not in policy
    for name, value in page.attributes:
        assert not name.startswith("on"), (name, value)
        if name in ("src", "href", "xlink:href", "action"):
            assert value.startswith("#"), (name, value)
    assert "@import" not in html
    assert "url(http" not in html
    # Addresses in the script are names of formats, not places: the one thing it asks is the page itself.
    assert set(re.findall(r"https?://[^\"'` ]+", script)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"fetch\(.*?\)", script) == ["fetch(location.href)"]


def test_hostile_text_is_shown_and_never_run(tmp_path):
    hostile = make_completion(
        1, problem_id=HOSTILE, question=HOSTILE, reference_answer=HOSTILE, completion=HOSTILE,
        rule="incorrect", judge="incorrect",
    )  # fmt: skip
    labels = LabelReport(
        num_completions=1, num_labelled=1, num_correct=1, num_dropped=0, decisions={HOSTILE: 1}, num_train=1,
        num_validation=0, num_test=0, judge_model=HOSTILE, seconds=1,
    )  # fmt: skip
    scores = binary_scores([0, 1], [0.2, 0.8])
    verify_rm = EvaluateVerifyRMReport(
        overall=scores, by_source={HOSTILE: scores}, confusion=confusion_counts([0, 1], [0.2, 0.8]), roc=[]
    )
    evaluations = [e.model_copy(update={"judge_model": HOSTILE})
                   for e in (make_evaluation(0, 0.4, 0.5), make_evaluation(9, 0.5, 0.6))]  # fmt: skip
    override = f"instruction={json.dumps(HOSTILE)}"
    html, _, _ = make_report(
        tmp_path, override, completions=[hostile], labels=labels, verify_rm=verify_rm, evaluations=evaluations
    )
    assert_nothing_but_our_script(html)
    assert sum(HOSTILE in text for text in _Page(html).texts) >= 6
    assert "49" not in re.sub(r"[^{}]*", "", html)


def test_the_page_says_how_verify_rm_could_be_fooled_and_how_sure_it_may_be(html: str):
    page = " ".join(" ".join(_Page(html).texts).split())
    assert "an earlier version wrote them" in page
    assert "several boxes three boxed answers, one of them right 25.0 % 15.0 to 40.0 % 48" in page
    assert "wrong reference a correct completion with another problem's reference answer 3.1 %" in page
    assert "reaches an AUROC of 0.550; VerifyRM 0." in page
    assert "AUROC 0.861 0.820 to 0.900" in page
    assert "answer type examples accuracy" in page
    assert "Calibration" in page


def test_the_page_says_how_far_the_voters_on_labels_agree_and_what_the_labels_lose(html: str):
    page = " ".join(" ".join(_Page(html).texts).split())
    assert "reference answer completions correct of them dropped κ of rule and judge" in page
    assert "all 1200 530 50 9.4 % 0.745 integer 1200 530 50 9.4 % 0.745" in page
    assert "rule and judge 800 87.5 % 0.745 judge and third 0 – –" in page


def test_the_page_says_how_many_labels_are_wrong_by_a_cascades_audit(html: str):
    page = " ".join(" ".join(_Page(html).texts).split())
    assert (
        "about 20 of these labels are wrong (4 to 90) . Of 1,000 labelled correct: 10 (2 to 50) . "
        "Of 1,000 labelled incorrect: 10 (2 to 50) ." in page
    )


def test_the_page_shows_the_verify_rm_that_is_delivered_beside_the_one_before(tmp_path):
    """.35 for a bound of .2: the first paragraph of page and summary says that it would be refused."""
    attacks = [
        {"several_boxes": Interval(value=rate, low=rate / 2, high=rate * 1.5, count=60)}
        for rate in (0.1, 0.35)
    ]
    evaluations = [
        make_evaluation(0, 0.4, 0.45, attacks=attacks[0]),
        make_evaluation(40, 0.5, 0.6, seed=1, attacks=attacks[1]),
    ]
    html, summary, result = make_report(tmp_path, evaluations=evaluations)
    said = (
        "Its promotion would be refused: VerifyRM accepts 35.0 % (17.5 to 52.5 %, 60 problems) of the "
        "canaries of the attack 'several_boxes'; at most 20.0 % of any attack's may pass."
    )
    page = " ".join(" ".join(_Page(html).texts).split())
    assert result.conclusion.startswith(said)
    assert page.index(said) < page.index("Every evaluation")
    assert summary.split("\n\n")[1].startswith(said)
    assert (
        "several boxes three boxed answers, one of them right 10.0 % 5.0 to 15.0 % 35.0 % 17.5 to 52.5 % 60"
        in page
    )
    assert "| several_boxes | 10.0 % (5.0 to 15.0 %) | 35.0 % (17.5 to 52.5 %) |" in summary
    for shown in ("before co-training 120", "delivered, step 40 120", "Calibration delivered, step 40"):
        assert shown in page
    assert "delivered, step 40, at score 0.5" in page
    assert (result.worst_attack, result.promotion_objection) == ("several_boxes", said.partition(": ")[2])
    _, _, fine = make_report(tmp_path / "fine", evaluations=[evaluations[0], evaluations[0].model_copy(
        update={"step": 40}
    )])  # fmt: skip
    assert fine.promotion_objection is None
    assert "refused" not in fine.conclusion


def test_an_evaluation_of_one_class_without_canaries_leaves_their_parts_out(tmp_path):
    scores = binary_scores([1, 1], [0.2, 0.8])
    verify_rm = EvaluateVerifyRMReport(
        overall=scores, by_source={"a": scores}, confusion=confusion_counts([1, 1], [0.2, 0.8]), roc=[]
    )
    html, _, _ = make_report(tmp_path, verify_rm=verify_rm)
    for absent in ("How it could be fooled", "Calibration", "ROC curve", "answer type"):
        assert absent not in html


def test_an_improvement_whose_interval_excludes_zero_is_called_one(tmp_path):
    """96 of 240 against 168 of 240: +30 points, far over its interval."""
    html, summary, result = make_report(
        tmp_path, evaluations=[make_evaluation(0, 0.4, 0.45), make_evaluation(40, 0.7, 0.7)]
    )
    assert result.accuracy_name == "accuracy"
    assert result.accuracy_change.value == pytest.approx(0.3)
    assert result.accuracy_change.low > 0
    start = "Accuracy rose by 30.0 points (95 % interval +"
    assert result.conclusion.startswith(start)
    assert "from 40.0 % to 70.0 % on 60 held-out problems after 40 steps" in result.conclusion
    assert start in html
    assert start in summary
    assert "reward hacking" not in result.conclusion


def test_without_a_judge_the_rule_speaks(tmp_path):
    rows = [row.model_copy(update={"judge": None}) for row in COMPLETIONS]
    evaluations = [make_evaluation(0, 0.4, 0.5, judge=False), make_evaluation(9, 0.5, 0.6, judge=False)]
    html, summary, result = make_report(tmp_path, completions=rows, evaluations=evaluations)
    assert result.accuracy_name == "rule accuracy"
    assert "judge: none" in html
    assert "Accuracy" not in summary


def test_a_long_run_stays_under_a_megabyte(tmp_path):
    html, _, _ = make_report(tmp_path, metrics=make_metrics(5000))
    assert len(html.encode()) < 1_000_000
    assert "Each point is a mean over 40 steps." in html


def test_the_largest_page_stays_under_a_megabyte(tmp_path):
    """Two arms of 5000 steps, and more texts than fit, each of another problem and over 1200 characters."""
    long = [make_completion(n, completion="<&>" * 3000, score=n % 100 / 100) for n in range(2000)]
    paths = write_run(tmp_path, metrics=make_metrics(5000), completions=long, start=long)
    given = {f"frozen_{name}": paths[name] for name in ("evaluations", "completions", "checkpoint")}
    outputs = {name: tmp_path / "out" / name for name in ("page", "summary", "report")}
    report.run(load("laptop"), **paths, **outputs, **given)
    assert 500_000 < outputs["page"].stat().st_size < 1_000_000


def test_two_arms_that_write_quotes_alone_stay_under_a_megabyte(tmp_path):
    """Five bytes a character, in every text of every kind that the page shows."""
    verdicts = ("correct", "incorrect", "unparsable")
    kinds = [(rule, judge, score) for rule in verdicts for judge in verdicts for score in (0.1, 0.9)]
    rows = [
        make_completion(
            number, question='"' * 3000, reference_answer='"' * 3000, completion='"' * 3000, rule=rule,
            judge=judge, score=score,
        )
        for number, (rule, judge, score) in enumerate(kinds * 4)
    ]  # fmt: skip
    start = [row.model_copy(update={"judge": verdicts[n % 2]}) for n, row in enumerate(rows)]
    attacks = {f"attack_{n}": Interval(value=0.1, low=0.05, high=0.2, count=40) for n in range(25)}
    points = [make_evaluation(step, 0.4, 0.5, attacks=attacks) for step in range(0, 2000, 200)]
    paths = write_run(tmp_path, metrics=make_metrics(2000), completions=rows, start=start, evaluations=points)
    given = {f"frozen_{name}": paths[name] for name in ("evaluations", "completions", "checkpoint")}
    outputs = {name: tmp_path / "out" / name for name in ("page", "summary", "report")}
    report.run(load("laptop"), **paths, **outputs, **given)
    assert outputs["page"].stat().st_size < 1_000_000


def test_the_same_problems_stand_before_and_after(html: str):
    """9 + 4 become right. Problem 31 has two completions at the end and counts once: 6 stay wrong."""
    text = " ".join(" ".join(_Page(html).texts).split())
    said = (
        "The first completion of each of 19 held-out problems: 13 wrong before, right after, 0 right before, "
    )
    assert f"{said}wrong after, 6 wrong before and after, 0 right before and after." in text
    assert "How many? Reference answer: 2 before At first. rule: correct judge: incorrect" in text
    assert text.count("wrong before, right after Tom has") == PAIRS_PER_CHANGE


def test_rollouts_can_be_filtered_by_verdicts_and_score(html: str):
    rows = re.findall(
        r'class="rollout" data-when="(.*?)" data-rule="(.*?)" data-judge="(.*?)" data-score="(.*?)"', html
    )
    assert len(rows) == 2 * len(COMPLETIONS)
    assert rows[0] == ("end", "incorrect", "incorrect", "0.990")
    assert {when for when, *_ in rows} == {"start", "end"}
    assert ("end", "unparsable", "incorrect", "0.970") in rows


def test_the_page_says_where_its_numbers_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv("COOPER_RL_COMMAND", "cooper-rl report --preset laptop")
    html, _, _ = make_report(tmp_path, "cooper.group_size=4")
    text = " ".join(" ".join(_Page(html).texts).split())
    assert "command cooper-rl report --preset laptop preset laptop --set cooper.group_size=4 commit " in text
    assert re.search(
        r"machine of this page .* core.* duration of co-training \d+ min \d+ s over 40 steps", text
    )


def test_the_first_figure_is_written_as_a_picture_too(tmp_path):
    paths = write_run(tmp_path)
    outputs = {name: tmp_path / name for name in ("page", "summary", "report", "picture")}
    report.run(load("laptop"), **paths, **outputs)
    with Image.open(outputs["picture"]) as picture:
        assert (picture.format, picture.size) == ("PNG", (968, 572))


def test_passwords_in_urls_are_blanked_in_the_configuration():
    judge = 'labeling.judge={server={base_url="http://me:secret@host/v1", model="m"}}'
    sources = 'problems.sources=["https://minio/b/p.jsonl?X-Amz-Signature=secret&a=1", "b.jsonl"]'
    shown = dict(settings(load("laptop", [judge, sources])))
    assert shown["problems.sources"] == '["https://minio/b/p.jsonl?***", "b.jsonl"]'
    assert shown["labeling.judge.server.base_url"] == '"http://***@host/v1"'
    assert shown["cooper.group_size"] == "8"


def test_what_cannot_be_reported_is_named(tmp_path):
    with pytest.raises(DataError, match=r"evaluations: holds one evaluation, and a report compares two; run"):
        make_report(tmp_path / "one", evaluations=[make_evaluation(0, 0.4, 0.5)])
    with pytest.raises(
        DataError, match=r"holds no checkpoint \(no LATEST file\); give a folder of train-cooper"
    ):
        report.read_step_metrics(tmp_path)
    for text, message in {
        "": r"metrics.jsonl: is empty; train at least one step",
        "not json\n": r"metrics.jsonl:1: not the numbers of a step .* use an earlier checkpoint",
        "[1]\n": r"metrics.jsonl:1: not the numbers of a step",
        '{"step": null}\n': r"metrics.jsonl:1: not the numbers of a step",
    }.items():
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(DataError, match=message):
            report.read_step_metrics(tmp_path)
    (tmp_path / "LATEST").write_bytes(b"\xff")
    with pytest.raises(DamagedObjectError, match=r"manifest.json: missing since it was written"):
        report.read_step_metrics(tmp_path)


def test_an_absent_input_names_the_file(tmp_path):
    paths = write_run(tmp_path)
    paths["label_report"].unlink()
    outputs = {name: tmp_path / "out" / name for name in ("page", "summary", "report")}
    with pytest.raises(
        DataError, match="label_report: no such file; run the stage that writes this LabelReport"
    ):
        report.run(load("laptop"), **paths, **outputs)
    assert not (tmp_path / "out").exists()


def test_the_red_teams_result_stands_on_the_page_and_in_the_conclusion(tmp_path):
    rate = Interval(value=0.62, low=0.54, high=0.7, count=131)
    texts = [
        AttackText(
            aim="universal", text=text, method="mutation", origin="repetition_2", num_queries=900,
            search_rate=0.7, unseen=rate, unseen_score=0.6,
        )
        for text in ("0" * 60 + "\n", HOSTILE)
    ]  # fmt: skip
    curve = [
        CurvePoint(method="seed", num_queries=300, search_rate=0.2, search_score=0.3, unseen_rate=0.1),
        CurvePoint(method="mutation", num_queries=900, search_rate=0.7, search_score=0.6, unseen_rate=0.62),
    ]
    texts.append(texts[0].model_copy(update={"text": "(0, n)", "answer_type": "point, interval or matrix"}))
    attacked = RedTeamReport(
        universal=rate, by_method={"mutation": rate}, by_family={"opener": rate}, num_search_problems=64,
        by_answer_type={"integer": rate.model_copy(update={"value": 0.1}), "point, interval or matrix": rate},
        num_unseen_problems=136, num_seeds=150, num_queries=20_000, seconds=9.0, curve=curve, texts=texts,
        rare_answer_types={"text": 4, "expression": 7},
    )  # fmt: skip
    write_report(tmp_path / "red_team.json", attacked)
    paths = write_run(tmp_path / "run")
    outputs = {name: tmp_path / name for name in ("page", "summary", "report")}
    setting = "registry.max_universal_rate=0.02"
    result = report.run(load("laptop", [setting]), **paths, **outputs, red_team=tmp_path / "red_team.json")
    html = outputs["page"].read_text()
    assert_nothing_but_our_script(html)
    assert _Page(html).tags.count("svg") == 17
    assert "What the red team found" in html
    assert json.dumps("0" * 60 + "\n")[1:-1] in html
    said = "is paid on 62.0 % (54.0 to 70.0 %) of 131 problems that no search touched."
    assert said in result.conclusion
    assert "that for 'point, interval or matrix' is paid most: on 62.0 %" in result.conclusion
    assert (
        "too few problems for a search on some kinds of answers: expression (7), text (4)."
        in result.conclusion
    )
    assert html.count("not searched: too few problems") == 2
    assert html.index(", for answers of the kind point, interval or matrix") > html.index(
        "kind of answer</th>"
    )
    assert said in outputs["summary"].read_text()
    assert result.universal_rate == rate
    assert result.promotion_objection.startswith("VerifyRM pays the red team's best universal text on 62.0 %")


def frozen_arm(folder: Path) -> dict[str, Path]:
    """The report's inputs of an arm that was hacked."""
    hacked = [make_completion(n, completion=HOSTILE, judge="incorrect", score=0.99) for n in range(40, 42)]
    frozen = write_run(
        folder,
        evaluations=[make_evaluation(0, 0.40, 0.45), make_evaluation(40, 0.05, 0.9)],
        completions=hacked,
    )
    return {f"frozen_{name}": frozen[name] for name in ("evaluations", "completions", "checkpoint")}


def test_an_arm_with_a_frozen_verify_rm_stands_beside_cooper(tmp_path):
    given = frozen_arm(tmp_path / "frozen")
    paths = write_run(tmp_path / "run")
    outputs = {name: tmp_path / name for name in ("page", "summary", "report")}
    result = report.run(load("laptop"), **paths, **outputs, **given)
    assert_nothing_but_our_script(outputs["page"].read_text())
    page = _Page(outputs["page"].read_text())
    assert page.tags.count("svg") == 18
    text = " ".join("".join(page.texts).split())
    assert text.index("VerifyRM, frozen") < text.index("Every evaluation")
    plots = [json.loads(value) for name, value in page.attributes if name == "data-plot"]
    frozen = next(plot for plot in plots if plot["title"] == "VerifyRM, frozen")
    assert [(line["label"], line["y"]) for line in frozen["lines"]][:2] == [
        ("accuracy", [0.4, 0.05]), ("VerifyRM reward", [0.45, 0.9]),
    ]  # fmt: skip
    assert text.count(" ".join(HOSTILE.split())) == 2 + 2  # what is paid most, and among the rollouts
    assert "40.0 % → 5.0 %" in text
    assert result.accuracy_after.value == pytest.approx(0.55)
    assert result.frozen_accuracy.value == pytest.approx(0.05)
    assert result.frozen_reward.value == pytest.approx(0.9)
    said = "a VerifyRM that never learns. Accuracy fell by 35.0 points"
    assert said in result.frozen_conclusion
    assert said in text
    assert "UTC" in text
    assert said in outputs["summary"].read_text()
    with pytest.raises(DataError, match="absent: no such file"):
        report.run(
            load("laptop"), **paths, **outputs, **(given | {"frozen_evaluations": tmp_path / "absent"})
        )


def test_a_plain_frozen_verify_rm_is_named_where_only_cooper_has_decoys(tmp_path):
    own, frozen = (
        write_run(
            tmp_path / str(decoys),
            evaluations=[
                make_evaluation(step, 0.4, score).model_copy(update={"num_decoys": decoys})
                for step, score in ((0, 0.45 - 0.1 * (decoys > 0)), (40, 0.9))
            ],
        )
        for decoys in (3, 0)
    )
    given = {f"frozen_{name}": frozen[name] for name in ("evaluations", "completions", "checkpoint")}
    outputs = {name: tmp_path / name for name in ("page", "summary", "report")}
    result = report.run(load("laptop"), **own, **outputs, **given)
    assert result.is_frozen_plain
    assert result.frozen_reward_before.value == pytest.approx(0.45)
    assert "on a VerifyRM that never learns and has no decoys." in result.frozen_conclusion
    text = " ".join("".join(_Page(outputs["page"].read_text()).texts).split())
    assert "plain VerifyRM, frozen" in text
    same = report.run(
        load("laptop"), **own, **outputs, **(given | {"frozen_evaluations": own["evaluations"]})
    )
    assert not same.is_frozen_plain


def test_pass_at_k_stands_with_the_evaluations_that_have_it(tmp_path):
    """60 problems with 4 completions each; the first evaluation is of a version without pass@k."""
    after = make_evaluation(40, 0.5, 0.5)
    rates = {1: 0.5, 2: 0.75, 4: 0.875}
    pass_at = {
        k: Interval(value=rate, low=rate - 0.1, high=rate + 0.1, count=60) for k, rate in rates.items()
    }
    html, _, _ = make_report(
        tmp_path, evaluations=[make_evaluation(0, 0.4, 0.4), after.model_copy(update={"pass_at": pass_at})]
    )
    rows = re.findall(r'<th scope="row">(pass@\d)</th>(.*?)</tr>', html, re.DOTALL)
    assert [(name, cells.count("–")) for name, cells in rows] == [("pass@2", 1), ("pass@4", 1)]
    assert "75.0" in rows[0][1]
    assert "87.5" in rows[1][1]
    assert "solves, by the judge." in html


def test_pass_at_k_and_the_mean_over_sources_leave_out_what_others_judged(tmp_path):
    """Of three evaluations the judge was away at step 20, whose numbers are the rule's."""

    def interval(value: float) -> Interval:
        return Interval(value=value, low=value - 0.1, high=value + 0.1, count=60)

    points = [
        make_evaluation(step, 0.4, 0.4, judge=step != 20).model_copy(
            update={"pass_at": {1: interval(0.4), 2: interval(rate)}, "mean_over_sources": interval(rate)}
        )
        for step, rate in ((0, 0.72), (20, 0.31), (40, 0.75))
    ]
    html, _, _ = make_report(tmp_path, evaluations=points)
    text = " ".join(" ".join(_Page(html).texts).split())
    assert "pass@2 72.0 % 62.0 to 82.0 % – 75.0 % 65.0 to 85.0 %" in text
    assert "Mean over sources 72.0 % 62.0 to 82.0 % – 75.0 % 65.0 to 85.0 %" in text
    assert "shown where the judge gave the verdicts. They are left out at step 20." in text


def test_problems_before_and_after_are_told_by_the_rule_where_one_side_had_no_judge(tmp_path):
    """The rule reads 9 texts on both sides. Of 4 that it cannot read, the judge calls those at the end right:
    that is no change of the policy."""
    paths = write_run(tmp_path)
    start = read_records(paths["start_completions"], EvaluatedCompletion)
    write_records(paths["start_completions"], [row.model_copy(update={"judge": None}) for row in start])
    outputs = {name: tmp_path / "out" / name for name in ("page", "summary", "report")}
    report.run(load("laptop"), **paths, **outputs)
    text = " ".join(" ".join(_Page(outputs["page"].read_text()).texts).split())
    said = "The first completion of each of 19 held-out problems, by the rule verifier: 0 wrong before, "
    assert f"{said}right after, 0 right before, wrong after, 10 wrong before and after, 9 right" in text


@pytest.mark.parametrize("judges", [(False, True, True), (True, True, False)], ids=["start", "frozen arm"])
def test_arms_of_which_one_has_no_judge_stand_side_by_side(tmp_path, judges):
    start, end, frozen_end = judges
    own, frozen = (
        write_run(
            tmp_path / name,
            evaluations=[
                make_evaluation(0, 0.4, 0.45, judge=first),
                make_evaluation(40, 0.55, 0.7, judge=last),
            ],
        )
        for name, first, last in (("own", start, end), ("frozen", frozen_end, frozen_end))
    )
    given = {f"frozen_{name}": frozen[name] for name in ("evaluations", "completions", "checkpoint")}
    outputs = {name: tmp_path / name for name in ("page", "summary", "report")}
    report.run(load("laptop"), **own, **outputs, **given)
    text = " ".join(" ".join(_Page(outputs["page"].read_text()).texts).split())
    table = text[text.index("from the start to the end") :]
    own_ends = "40.0 % → 55.0 % 47.9 to 61.9 %" if start else "– → 55.0 % 47.9 to 61.9 %"
    other_ends = "40.0 % → 55.0 % 47.9 to 61.9 %" if frozen_end else "– → –"
    assert f" Accuracy {own_ends} {other_ends} Rule accuracy 28.3 % → 39.2 %" in table


def test_a_sources_row_has_the_accuracy_that_it_is_named_after(tmp_path):
    """The start had no judge, so the rule's accuracy is compared: .2 and .3, not the judge's .9."""
    some = [Interval(value=value, low=value, high=value, count=9) for value in (0.2, 0.3, 0.9)]
    first, last = make_evaluation(0, 0.4, 0.45, judge=False), make_evaluation(40, 0.55, 0.7)
    points = [
        point.model_copy(
            update={"by_source": {"gsm8k": SourceScores(
                rule_accuracy=rule, judge_accuracy=judge, verify_rm_reward=rule
            )}}
        )
        for point, rule, judge in ((first, some[0], None), (last, some[1], some[2]))
    ]  # fmt: skip
    html, _, _ = make_report(tmp_path, evaluations=points)
    text = " ".join(" ".join(_Page(html).texts).split())
    assert "Rule accuracy, gsm8k 20.0 % 20.0 to 20.0 % 30.0 % 30.0 to 30.0 %" in text


def test_a_page_of_long_reference_answers_names_and_ids_stays_under_a_megabyte(tmp_path):
    """As of programs, whose reference answers are tests in JSON: every quote is five bytes on the page."""
    long = '{"input": ["1", "2"], "output": "3"}, ' * 40
    kinds = [
        (rule, judge, tenth / 5 + 0.1)
        for rule in ("correct", "incorrect", "unparsable")
        for judge in ("correct", "incorrect", "unparsable")
        for tenth in range(5)
    ]
    rows = [
        make_completion(
            n, problem_id=f"{n}{long}", reference_answer=long, completion=long, question=long, rule=rule,
            judge=judge, score=score,
        )
        for n, (rule, judge, score) in enumerate(kinds * 4)
    ]  # fmt: skip
    scores = binary_scores([0, 1], [0.2, 0.8])
    verify_rm = EvaluateVerifyRMReport(
        overall=scores, confusion=confusion_counts([0, 1], [0.2, 0.8]), roc=[],
        by_source={f"{n}{long}": scores for n in range(99)},
        by_answer_type={f"{n}{long}": scores for n in range(99)},
    )  # fmt: skip
    html, _, _ = make_report(tmp_path, completions=rows, start=rows, verify_rm=verify_rm)
    assert len(html.encode()) < 1_000_000
    assert "98{" not in html
    assert html.count("39{") > 1
