"""What a run shows while it trains."""

from fenchel.progress import Bar
from fenchel.train import source, train
from fenchel.train.reporting import BarReporter, LineReporter, format_seconds


class Recorder(Bar):
    """A bar that remembers instead of drawing."""

    def __init__(self) -> None:
        self.steps, self.notes = 0.0, []

    def advance(self, amount: float = 1) -> None:
        self.steps += amount

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_the_bar_moves_with_every_step_and_tells_epoch_loss_and_accuracy(make_run, monkeypatch):
    monkeypatch.setattr(source, "NOTE_EVERY", 4)
    bar = Recorder()
    train(make_run(), BarReporter(bar, epochs=2, epoch=0))
    assert bar.steps == 24
    assert len(bar.notes) == 6
    assert bar.notes[0].startswith("epoch 1/2, loss ")
    assert bar.notes[-1].startswith("epoch 2/2, loss ")
    assert bar.notes[-1].endswith(" %")


def test_without_a_terminal_an_epoch_is_a_line_with_the_time_left(make_run, capsys):
    train(make_run(recipe_held_out=0.2))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    for part in ("loss ", "train accuracy ", "held-out accuracy ", " images/s", " left"):
        assert part in lines[0]
    assert lines[1].endswith("0 s left")


def test_the_time_left_follows_the_speed_of_the_steps(monkeypatch, capsys):
    now = iter([100.0, 110.0])
    monkeypatch.setattr("fenchel.train.reporting.time.monotonic", lambda: next(now))
    reporter = LineReporter(epochs=3, steps_left=30)
    for _ in range(10):
        reporter.step(images=50)
    reporter.epoch(1, {"train_loss": 1.5, "train_accuracy": 0.25})
    expected = "epoch 1/3: loss 1.5000, train accuracy 25.00 %, 50 images/s, 20 s left"
    assert capsys.readouterr().err.strip() == expected


def test_durations_are_told_in_two_units_at_most():
    assert [format_seconds(s) for s in (0.4, 59, 61, 3599, 3600, 9000)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "59 min 59 s",
        "1 h 0 min",
        "2 h 30 min",
    ]
