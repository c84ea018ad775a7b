"""What later steps depend on beside the models (row 13): of one size, however many steps were done.

It is a function of the metrics and pairs so far. A checkpoint holds it, so that a run is continued without
reading its log. Deliberately left out: the models and pairs under way (`checkpoints/state.py`).
"""

from collections.abc import Iterable, Mapping, Sequence

from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.method.monitor import ALARM, DENIED, JUDGED, MonitorState, watch
from cooper_rl.schema.data import PreferencePair, Record

RUN_STATE = "run_state.json"
NUM_RECENT_PAIRS = 256
"""What the leak guard looks at."""
SHORTCUT = "pairs/shortcut_auroc"
"""Step metric of the leak guard."""
GATE_DATA, GATE_START = "gate/data", "gate/start_"
"""Step metrics from which a continued run knows how VerifyRM was on the gate's data at the start."""


class RunState(Record):
    """The past, as far as it bears on what comes."""

    monitor: MonitorState = MonitorState()
    first_alarm_step: int | None = None
    """Of the first alarm that no judge denied."""
    best_judged: float | None = None
    """Highest accuracy by the judge on held-out problems."""
    shortcut_auroc: float | None = None
    """What the leak guard last found."""
    gate_starts: tuple[dict[str, float], ...] = ()
    """One entry for each data that the gate was measured on, in the order of their first steps."""
    recent_pairs: tuple[PreferencePair, ...] = ()
    """The newest pairs, oldest first."""

    @property
    def is_hacked(self) -> bool:
        """Whether the monitor has raised an alarm that no judge denied."""
        return self.first_alarm_step is not None

    def with_pairs(self, pairs: Sequence[PreferencePair]) -> "RunState":
        """After these pairs were learned from."""
        recent = (*self.recent_pairs, *pairs)[-NUM_RECENT_PAIRS:]
        return self.model_copy(update={"recent_pairs": recent})

    def after(self, row: Mapping[str, float], monitor: MonitorState) -> "RunState":
        """After a step with these metrics, at which the monitor came to this state."""
        is_denied = bool(row.get(DENIED))
        changes: dict[str, object] = {"monitor": MonitorState() if is_denied else monitor}
        if not self.is_hacked and row.get(ALARM) and not is_denied:
            changes["first_alarm_step"] = int(row["step"])
        if JUDGED in row and (self.best_judged is None or row[JUDGED] > self.best_judged):
            changes["best_judged"] = row[JUDGED]
        if SHORTCUT in row:
            changes["shortcut_auroc"] = row[SHORTCUT]
        start = {key: row[key] for key in row if key.startswith(GATE_START) or key == GATE_DATA}
        if start and all(start.get(GATE_DATA) != known.get(GATE_DATA) for known in self.gate_starts):
            changes["gate_starts"] = (*self.gate_starts, start)
        return self.model_copy(update=changes)


def replay(
    rows: Iterable[Mapping[str, float]], pairs: Sequence[PreferencePair], config: MonitorConfig | None
) -> RunState:
    """The state after these steps, for a checkpoint of a version that kept their log alone."""
    state = RunState().with_pairs(pairs)
    for row in rows:
        state = state.after(row, watch(state.monitor, row, config).state if config else state.monitor)
    return state
