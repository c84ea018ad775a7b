"""The command line of pipelines: slips, and what a shell completes."""

import pytest

from pipelines.__main__ import main
from tests.bash_completion import complete_in_bash


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["locl"], "unknown command 'locl'; did you mean 'local'?"),
        (["zzz"], "unknown command 'zzz'; use one of local, compile, submit, schedule, completion"),
        (["local", "--presett", "laptop"], "local has no option '--presett'; did you mean '--preset'?"),
        (
            ["local", "verify_rm", "--itertions=3"],
            "local has no option '--itertions'; did you mean '--iterations'?",
        ),
        (["schedule", "aply"], "unknown command 'schedule aply'; did you mean 'apply'?"),
        (["schedule", "apply", "--crn", "0"], "schedule apply has no option '--crn'; did you mean '--cron'?"),
        (["schedule", "list", "--cron", "0"], "schedule list has no option '--cron'; use one of --help"),
    ],
)
def test_a_slip_is_answered_with_the_name_that_was_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    shown = capsys.readouterr().err
    assert said in shown


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["sub"], ["submit"]),
        (["local", "en"], ["end_to_end"]),
        (["local", "--prof"], ["--profile"]),
        (["local", "--profile", "de"], ["demo"]),
        (["local", "--runner", ""], ["subprocess", "docker"]),
        (["submit", "--preset", "sing"], ["single_gpu"]),
        (["schedule", "pa"], ["pause"]),
        (["schedule", "apply", "--cr"], ["--cron"]),
        (["compile", "--pipeline", "re"], ["retrain"]),
        (["local", "--output", "mine"], []),
    ],
)
def test_bash_completes_commands_options_and_their_values(
    typed: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    assert complete_in_bash(capsys.readouterr().out, "cooper-rl-pipelines", typed) == expected


def test_zsh_takes_the_same_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("autoload -U +X bashcompinit && bashcompinit\n_cooper_rl_pipelines() {")
    assert shown.endswith("complete -o default -F _cooper_rl_pipelines cooper-rl-pipelines\n")
