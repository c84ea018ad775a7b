"""The state of a run that later steps need beside the models (row 13); its size does not grow with the steps.

It is a function of the metrics and pairs so far. A checkpoint holds it, so that a run is continued without
reading its log. The models and the pairs under way are in `checkpoints/state.py`.
"""

from collections.abc import Iterable, Sequence

from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.method.monitor import MonitorState, watch
from cooper_rl.schema.data import PreferencePair, Record
from cooper_rl.schema.step_metrics import GateMetrics, StepMetrics

RUN_STATE = "run_state.json"
NUM_RECENT_PAIRS = 256
"""The newest pairs, which the leak guard looks at."""


class RunState(Record):
    """The past, as far as it bears on what comes."""

    monitor: MonitorState = MonitorState()
    first_alarm_step: int | None = None
    """The step of the first alarm that no judge denied."""
    best_judged: float | None = None
    """Highest accuracy by the judge on held-out problems."""
    best_judged_step: int | None = None
    """The step of that evaluation; None in checkpoints of earlier versions too."""
    best_by_problem: tuple[float, ...] = ()
    """Accuracy of each held-out problem in that evaluation; empty in checkpoints of earlier versions too."""
    evaluated_under: str | None = None
    """Names the settings of these evaluations; None in checkpoints of earlier versions too."""
    shortcut_auroc: float | None = None
    """The leak guard's last reading."""
    gate_starts: tuple[GateMetrics, ...] = ()
    """One entry for each data that the gate was measured on, in the order of their first steps."""
    recent_pairs: tuple[PreferencePair, ...] = ()
    """The newest pairs, oldest first."""
    num_pairs: int = 0
    """Of all steps; in runs of earlier versions, of those since."""
    num_alarms: int = 0
    """Steps at which the monitor saw hacking, likewise."""

    @property
    def is_hacked(self) -> bool:
        """True if the monitor has raised an alarm that no judge denied."""
        return self.first_alarm_step is not None

    def with_pairs(self, pairs: Sequence[PreferencePair]) -> "RunState":
        """After these pairs were learned from."""
        # Bounded: the state is written with every checkpoint, and a run of 10,000 steps must not write its
        # past each time.
        recent = (*self.recent_pairs, *pairs)[-NUM_RECENT_PAIRS:]
        return self.model_copy(update={"recent_pairs": recent})

    def evaluating_under(self, conditions: str) -> "RunState":
        """Before an evaluation: accuracies under other settings are no measure for it, and are forgotten."""
        changes: dict[str, object] = {"evaluated_under": conditions}
        if self.evaluated_under not in (None, conditions):
            changes |= {"best_judged": None, "best_judged_step": None, "best_by_problem": ()}
        return self.model_copy(update=changes)

    def after(
        self, row: StepMetrics, monitor: MonitorState, judged_by_problem: tuple[float, ...] = ()
    ) -> "RunState":
        """After a step with these metrics, at which the monitor came to this state.

        Args:
            row: The step's metrics.
            monitor: Its state.
            judged_by_problem: Accuracy by the judge of each held-out problem, where the step was evaluated.
        """
        is_denied, judged = bool(row.monitor.denied), row.eval.judge_accuracy
        changes: dict[str, object] = {"monitor": monitor.after_denial() if is_denied else monitor}
        changes["num_pairs"] = self.num_pairs + int(row.pairs.count or 0)
        changes["num_alarms"] = self.num_alarms + bool(row.monitor.alarm)
        if not self.is_hacked and row.monitor.alarm and not is_denied:
            changes["first_alarm_step"] = row.step
        if judged is not None and (self.best_judged is None or judged > self.best_judged):
            changes |= {"best_judged": judged, "best_judged_step": row.step}
            changes["best_by_problem"] = judged_by_problem
        if row.pairs.shortcut_auroc is not None:
            changes["shortcut_auroc"] = row.pairs.shortcut_auroc
        known = {each.data for each in self.gate_starts}
        if row.gate.start_accuracy is not None and row.gate.data not in known:
            changes["gate_starts"] = (*self.gate_starts, _start_of(row.gate))
        return self.model_copy(update=changes)


def replay(
    rows: Iterable[StepMetrics], pairs: Sequence[PreferencePair], config: MonitorConfig | None
) -> RunState:
    """The state after these steps, for a checkpoint of a version that kept their log alone."""
    state = RunState().with_pairs(pairs)
    for row in rows:
        state = state.after(row, watch(state.monitor, row, config).state if config else state.monitor)
    return state


def _start_of(gate: GateMetrics) -> GateMetrics:
    return GateMetrics(
        data=gate.data,
        start_accuracy=gate.start_accuracy,
        start_canary_rate=gate.start_canary_rate,
        start_attacks=gate.start_attacks,
    )
