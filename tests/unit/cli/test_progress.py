"""Progress where there is no terminal: lines, few of them."""

from khot.cli.progress import _lines, progress


def test_the_first_and_the_last_report_are_lines(capsys):
    with progress("khot test") as report:
        report("begins", 0.0)
        report("goes on", 0.5)
        report("done", 1.0)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "khot test: 0%, begins\nkhot test: 100%, done\n"


def test_between_them_one_line_now_and_then(capsys):
    now = 0.0
    report = _lines("t", seconds=10, clock=lambda: now)
    for step in range(50):
        now = float(step)
        report(f"step {step}", step / 100)
    assert capsys.readouterr().err.splitlines() == [
        f"t: {step}%, step {step}" for step in (0, 10, 20, 30, 40)
    ]
