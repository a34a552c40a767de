"""Tests for clients.evaluation.report, clients.evaluation.figures and clients.evaluation.results,
on a made-up run."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from clients.evaluation import figures
from clients.evaluation.inline_svg import VARIABLES, inline
from clients.evaluation.report import Report, write_report
from clients.evaluation.report_page import markdown, page
from clients.evaluation.report_rows import score_rows
from clients.evaluation.results import (
    SCHEMA,
    Certainty,
    Data,
    Evaluation,
    FoundBoundary,
    History,
    Milestone,
    OutlierTest,
    Protocol,
    Run,
    ShadowScore,
    Speed,
    StillHeld,
)
from clients.evaluation.sample_quality import SampleQuality
from clients.evaluation.scores import Latency, Position, match_boundaries
from clients.evaluation.too_short import TooShort

SUB_TASKS = ((0, 1), (2, 3), (4, 5))
N = 20  # batches per sub-task
NOTHING = Certainty(math.nan, math.nan, math.nan)


def a_run(seed: int = 0, *, found: tuple[int, ...] = (N + 1, 2 * N + 2)) -> Run:
    """Three sub-tasks of 20 batches of 100 samples; boundaries reported where `found` says."""
    rng = np.random.default_rng(seed)
    n_batches = N * len(SUB_TASKS)
    rate = np.clip(0.85 + 0.03 * rng.standard_normal(n_batches), 0, 1)
    rate[0] = math.nan
    rate[[N, 2 * N]] = 0.05
    correct = np.clip(0.95 + 0.02 * rng.standard_normal(n_batches), 0, 1)
    matrix = np.array([[0.99, 0, 0], [0.97, 0.98, 0], [0.95, 0.96, 0.97]]) - 0.01 * seed
    matrix = matrix.clip(0)
    seconds = tuple(rng.uniform(0.001, 0.01, 30).tolist())
    starts = [Position(N * i, 100 * N * i) for i in (1, 2)]
    reports = [Position(batch, 100 * batch) for batch in found]
    return Run(
        seed=seed,
        history=History(
            sub_task=tuple(np.repeat(range(len(SUB_TASKS)), N).tolist()),
            samples=(100,) * n_batches,
            labelled=(100,) * n_batches,
            set_aside=tuple(batch in (N, 2 * N) for batch in range(n_batches)),
            inlier_rate=tuple(rate.tolist()),
            log_likelihood_mean=(100.0,) * n_batches,
            prequential_accuracy=tuple(correct.tolist()),
            estimated_accuracy=(math.nan, *[0.95] * (n_batches - 1)),
        ),
        milestones=tuple(
            Milestone(
                sub_task=i,
                classes=SUB_TASKS[i],
                samples_sent=100 * N * (i + 1),
                model_version=10 * (i + 1),
                accuracy_seen=float(matrix[i, : i + 1].mean()),
                accuracy_joint=float(matrix[i].mean()),
                accuracy_per_sub_task=tuple(matrix[i].tolist()),
            )
            for i in range(3)
        ),
        found=tuple(
            FoundBoundary(
                f"b{p.batch}", p.batch, p.sample, "sequential", {"statistic": 31.5}, 9, 11
            )
            for p in reports
        ),
        boundaries=match_boundaries(reports, starts, tolerance=1000),
        confusion=tuple(tuple(row) for row in (np.eye(6, dtype=int) * 40 + 1).tolist()),
        outliers=(OutlierTest("uniform noise", 500, 0.99, 0.01),),
        speed=Speed(2.5, 2400.0, Latency.of(seconds), Latency.of(seconds), 500, seconds, seconds),
        model={"model_version": 30, "components": 100, "device": "cpu", "classes": []},
        held=(
            StillHeld(
                sub_task=0,
                classes=SUB_TASKS[0],
                samples=256,
                model_version=30,
                own_then=Certainty(1.0, 0.98, 212.5),
                own_now=Certainty(0.99, 0.94, 200.25),
                test_then=Certainty(0.97, 0.95, 210.0),
                test_now=Certainty(0.94, 0.90, 190.0),
            ),
            StillHeld(1, (), 256, 30, *(Certainty(math.nan, math.nan, -1.5),) * 2, *(NOTHING,) * 2),
        ),
    )


def an_evaluation(*runs: Run) -> Evaluation:
    return Evaluation(
        created="2026-11-20T10:00:00+00:00",
        command="gmr evaluate digits --slt 0,1/2,3/4,5",
        duration_seconds=12.3,
        data=Data("digits", "digits", 3000, 300, 64, (8, 8), (0, 1, 2, 3, 4, 5)),
        protocol=Protocol(
            slt="0,1/2,3/4,5",
            sub_tasks=SUB_TASKS,
            batch_size=100,
            epochs=1,
            labelled=1.0,
            limit=None,
            tolerance_samples=1000,
            seeds=tuple(run.seed for run in runs),
            service={"url": "private"},
        ),
        versions={"python": "3.11"},
        hardware={"cores": 2},
        runs=runs,
    )


def drawn() -> dict[object, np.ndarray]:
    return {label: np.random.default_rng(label).uniform(size=(4, 64)) for label in range(6)}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The files of one run."""
    return write_report(an_evaluation(a_run()), drawn(), tmp_path_factory.mktemp("report"))


class Page(HTMLParser):
    """Collects text, figures and links of a page, and complains of tags left open."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.figures: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [
            value for name, value in values.items() if name in ("src", "href", "xlink:href")
        ]
        self.ids += [values["id"]] if "id" in values else []
        if tag == "svg":
            assert values["role"] == "img"
            self.figures.append(values["aria-label"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def test_the_page_is_one_file_that_needs_no_other(report: Report):
    text = report.html.read_text(encoding="utf-8")
    read = Page(text)
    assert len(read.figures) == len(report.figures) == 7
    assert any(label.startswith("Accuracy matrix. ") for label in read.figures)
    inside = [link.removeprefix("#") for link in read.links if link.startswith("#")]
    assert inside
    assert set(inside) <= set(read.ids)
    assert len(read.ids) == len(set(read.ids)), "figures share no ids"
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(read.ids)
    outside = [link for link in read.links if not link.startswith("#")]
    assert all(link.startswith("data:image/png;base64,") for link in outside)


def test_figures_in_the_page_take_the_colours_of_the_page(report: Report):
    text = report.html.read_text(encoding="utf-8")
    style, _, body = text.partition("</style>")
    light, dark = style.split("prefers-color-scheme: dark")
    for colour, variable in VARIABLES.items():
        assert f"{variable}:" in light
        assert f"{variable}:" in dark
        drawings = re.findall(r'style="[^"]*"', body)
        assert not [one for one in drawings if colour.lower() in one.lower()]
    for variable in ("--figure-ink", "--figure-paper", "--figure-blue", "--figure-vermilion"):
        assert f"var({variable})" in body
    # The files for papers are drawn for white paper.
    for path in report.figures.values():
        assert "var(" not in path.read_text(encoding="utf-8")


def test_the_same_figure_gives_the_same_text():
    def drawing() -> str:
        return figures.to_svg(figures.accuracy_matrix(a_run().matrix, SUB_TASKS))

    assert drawing() == drawing()


def test_a_class_may_have_any_name_in_a_figure():
    figure = figures.accuracy_matrix([[1.0, 0.0], [1.0, 1.0]], [("$x_1$", "<b>"), ('"&',)])
    svg = inline(figures.to_svg(figure), "figure", 'a "<b>" & b')
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'a "<b>" & b'
    written = "".join(root.itertext())
    assert "$x_1$ <b>" in written
    assert '"&' in written


def test_a_heat_map_is_drawn_of_vectors():
    svg = figures.to_svg(figures.confusion(np.eye(4) * 9 + 1, "abcd"))
    assert "<image" not in svg
    assert svg.count(figures.HEAT.lower()) == 16


def test_the_page_states_the_scores_that_a_paper_would(report: Report):
    words = Page(report.html.read_text(encoding="utf-8")).words
    for expected in ("96.0 % accuracy, all classes", "2 of 2 boundaries found", "BWT -3.0 points"):
        assert expected in words
    assert "gmr evaluate digits --slt 0,1/2,3/4,5" in words


def test_what_the_model_says_of_its_past_stands_beside_what_test_data_say():
    evaluation = an_evaluation(a_run())
    words = Page(page(evaluation)).words
    row = "0 0, 1 100.0 → 99.0 97.0 → 94.0 98.0 → 94.0 95.0 → 90.0 212.5 → 200.2 210.0 → 190.0"
    assert row in words
    none = "\N{EN DASH}"
    assert f"1 {none} {none} {none} {none} {none} -1.5 → -1.5 {none}" in words
    # The unlabelled sub-task counts for nothing in it.
    assert "accuracy -1.0 by the model's own samples, -3.0 by test data" in words
    assert "certainty -4.0 by its own samples, -5.0 by test data" in words
    content = json.loads(json.dumps(evaluation.to_dict()))
    first, second = content["runs"][0]["held"]
    assert first["own_now"] == {"accuracy": 0.99, "probability": 0.94, "log_likelihood": 200.25}
    assert second["test_now"] == dict.fromkeys(first["own_now"])


def test_without_a_past_sub_task_the_page_says_nothing_of_it():
    evaluation = an_evaluation(replace(a_run(), held=()))
    assert "still held" not in Page(page(evaluation)).words


def test_missed_and_false_boundaries_are_not_hidden():
    evaluation = an_evaluation(a_run(found=(10, N + 1)))
    words = Page(page(evaluation)).words
    assert "1 of 2 boundaries found" in words
    assert "1 false boundaries" in words
    assert "missed" in words


def test_names_of_classes_cannot_break_the_page(tmp_path: Path):
    run, evil = a_run(), "<script>alert(1)</script>"
    milestones = (replace(run.milestones[0], classes=(evil, "&")), *run.milestones[1:])
    evaluation = an_evaluation(replace(run, milestones=milestones))
    text = write_report(evaluation, {}, tmp_path).html.read_text(encoding="utf-8")
    assert "<script" not in text
    assert evil in Page(text).words


def test_the_json_is_complete_and_has_no_nan(tmp_path: Path):
    evaluation = an_evaluation(a_run(0), a_run(1))
    text = write_report(evaluation, {}, tmp_path).json.read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert content["schema"] == SCHEMA
    assert content["protocol"]["seeds"] == [0, 1]
    first = content["runs"][0]
    assert first["accuracy_matrix"] == a_run(0).matrix.tolist()
    assert first["history"]["inlier_rate"][0] is None
    assert first["boundaries"]["matches"][1]["delay_batches"] == 2
    assert first["scores"]["boundary_delay_samples"] == 150
    assert first["history"]["estimated_accuracy"][:2] == [None, 0.95]
    assert 0 < first["scores"]["estimate_error"] < 0.05
    assert content["summary"]["accuracy"]["n"] == 2
    assert content["summary"]["accuracy"]["mean"] == pytest.approx(0.955, abs=1e-9)


def test_a_sub_task_too_short_for_the_detector_is_told_in_both_files() -> None:
    run = replace(a_run(), unwatched=(TooShort(1, 120, 80),))
    (values,) = json.loads(json.dumps(an_evaluation(run).to_dict()))["runs"]
    assert values["unwatched"] == [{"sub_task": 1, "samples": 120, "missing": 80}]
    for text in (page(an_evaluation(run)), markdown(an_evaluation(run))):
        assert "Sub-task 1 has 120 samples, 80 fewer than the detector needs" in text
        assert "--epochs 2" in text
    assert "fewer than the detector" not in page(an_evaluation(a_run()))


def test_the_names_in_the_json_do_not_change_by_accident():
    """Readers depend on them: a change here needs a new SCHEMA."""
    content = an_evaluation(a_run()).to_dict()
    assert list(content) == [
        "schema", "created", "command", "duration_seconds", "data", "protocol", "versions",
        "hardware", "summary", "runs",
    ]  # fmt: skip
    assert list(content["runs"][0]) == [
        "seed", "history", "milestones", "found", "boundaries", "confusion", "outliers", "speed",
        "model", "held", "shadows", "unwatched", "reference",
        "sample_quality", "accuracy_matrix", "scores",
    ]  # fmt: skip
    assert sorted(content["summary"]) == [
        "accuracy", "average_accuracy", "average_anytime_accuracy", "backward_transfer",
        "boundaries_false", "boundaries_found", "boundaries_missed", "boundaries_true",
        "boundary_delay_batches", "boundary_delay_samples", "classify_p50_seconds",
        "classify_p99_seconds", "estimate_error", "forgetting", "forward_transfer",
        "ingest_p50_seconds", "ingest_p99_seconds", "prequential_accuracy", "sample_accepted",
        "sample_coverage", "sample_density", "sample_precision", "sample_purity", "sample_recall",
        "samples_per_second",
    ]  # fmt: skip


def test_forward_transfer_is_told_where_fresh_models_learned_the_same() -> None:
    run = a_run()
    assert math.isnan(run.scores()["forward_transfer"])
    fresh = replace(run, reference=(math.nan, 0.90, 0.90))
    # The run itself had about 0.95 in each sub-task: half of what the fresh model lacked.
    assert fresh.scores()["forward_transfer"] == pytest.approx(0.5, abs=0.1)
    values = {row[0]: row[1] for row in score_rows(an_evaluation(fresh).summary())}
    assert values["FWT"].startswith("0.")
    values = {row[0]: row[1] for row in score_rows(an_evaluation(run).summary())}
    assert values["FWT"] == "\N{EN DASH}"


def test_what_is_drawn_is_told_by_its_scores() -> None:
    quality = SampleQuality((), 1.0, 0.985, 0.97, 0.9, 0.8, 1.25, 0.75)
    values = {
        row[0]: row[1]
        for row in score_rows(an_evaluation(replace(a_run(), sample_quality=quality)).summary())
    }
    assert values["samples: purity"].startswith("98.5")
    assert values["samples: density"].startswith("1.250")
    values = {row[0]: row[1] for row in score_rows(an_evaluation(a_run()).summary())}
    assert values["samples: coverage"] == "\N{EN DASH}"


def test_a_single_sub_task_and_unlabelled_data_leave_dashes_not_zeros():
    run = a_run()
    history = replace(
        run.history,
        labelled=(0,) * len(run.history),
        prequential_accuracy=(math.nan,) * len(run.history),
        sub_task=(0,) * len(run.history),
    )
    milestone = replace(run.milestones[0], accuracy_per_sub_task=(0.99,))
    single = replace(
        run,
        history=history,
        milestones=(milestone,),
        found=(),
        boundaries=match_boundaries([], [], tolerance=1000),
    )
    evaluation = an_evaluation(single)
    protocol = replace(evaluation.protocol, sub_tasks=((0, 1, 2, 3, 4, 5),))
    evaluation = replace(evaluation, protocol=protocol)
    values = {row[0]: row[1] for row in score_rows(evaluation.summary())}
    assert values["BWT"] == values["forgetting"] == values["prequential accuracy"] == "\N{EN DASH}"
    words = Page(page(evaluation)).words
    assert "no boundary is expected" in words


def test_several_seeds_show_their_spread():
    evaluation = an_evaluation(a_run(0), a_run(1), a_run(2))
    words = Page(page(evaluation)).words
    assert "Mean over 3 seeds." in words
    assert re.search(r"accuracy 95\.0 % 1\.0 94\.0 96\.0", words)


def test_a_cut_training_set_is_said_out_loud():
    evaluation = an_evaluation(a_run())
    cut = replace(evaluation, protocol=replace(evaluation.protocol, limit=500))
    words = Page(page(cut)).words
    assert "cut to 500 samples per sub-task" in words


def test_samples_that_are_no_images_have_no_montage(tmp_path: Path):
    evaluation = an_evaluation(a_run())
    table = replace(evaluation, data=replace(evaluation.data, image_shape=None))
    assert "samples" not in write_report(table, drawn(), tmp_path).figures


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def has_colour(image: np.ndarray, colour: str) -> bool:
    """Whether enough pixels for a mark have this colour, to within antialiasing."""
    target = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(image.astype(int) - target).max(axis=-1) < 12).sum()) > 20


def test_found_boundaries_are_drawn_and_only_when_found(tmp_path: Path):
    images = {}
    for name, found in (("with", (N + 1,)), ("without", ())):
        run = a_run(found=found)
        figure = figures.inlier_rate(
            run.history.inlier_rate,
            run.history.set_aside,
            run.history.sub_task,
            run.boundaries,
            SUB_TASKS,
        )
        images[name] = pixels(figures.save(figure, tmp_path / f"{name}.png"))
    assert has_colour(images["with"], figures.VERMILION)
    assert not has_colour(images["without"], figures.VERMILION)


@pytest.mark.parametrize("n", [1, 2, 3, 12])
@pytest.mark.parametrize("letters", [1, 20, 200])
def test_long_names_of_classes_leave_room_for_the_figures(n: int, letters: int, tmp_path: Path):
    names = [f"{'W' * letters} {number}" for number in range(12)]
    sub_tasks = [names[begin::n] for begin in range(n)]
    # Warnings are errors here: of a layout that has no room, too.
    for name, figure in (
        ("matrix", figures.accuracy_matrix(np.eye(n), sub_tasks)),
        ("confusion", figures.confusion(np.eye(n), names[:n])),
        ("accuracy", figures.accuracy(np.full((1, n), 0.9), np.full((1, n), 0.5), sub_tasks)),
    ):
        figures.to_svg(figure)
        figures.save(figure, tmp_path / f"{name}.png")
        box = figure.axes[0].get_window_extent()
        assert min(box.width, box.height) > 0.2 * min(figure.bbox.width, figure.bbox.height)


def test_figures_are_large_enough_to_print(report: Report):
    for name, path in report.figures.items():
        height, width, _ = pixels(path.with_suffix(".png")).shape
        assert width >= 400, name
        assert height >= 300, name


def test_drawing_leaves_the_style_of_others_alone(tmp_path: Path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    write_report(an_evaluation(a_run()), drawn(), tmp_path)
    assert dict(mpl.rcParams) == before


def test_the_overview_shows_boundaries_accuracy_and_samples(tmp_path: Path):
    run = a_run()
    figure = figures.overview(
        run.history.inlier_rate,
        run.history.set_aside,
        run.history.sub_task,
        run.boundaries,
        SUB_TASKS,
        seen=[0.99, 0.97, 0.96],
        newest_only=[1.0, 0.5, 1 / 3],
        drawn=drawn(),
        image_shape=(8, 8),
    )
    image = pixels(figures.save(figure, tmp_path / "overview.png"))
    assert has_colour(image, figures.VERMILION)
    assert has_colour(image, figures.BLUE)


def test_the_same_stands_in_markdown(report: Report):
    evaluation = an_evaluation(a_run(found=(N + 1,)))
    run = evaluation.runs[0]
    milestones = (replace(run.milestones[0], classes=("a|b", "c\nd")), *run.milestones[1:])
    evaluation = replace(evaluation, runs=(replace(run, milestones=milestones),))
    text = markdown(evaluation)
    assert "| accuracy | 96.0 % | all classes of the joint test set, at the end |" in text
    assert "| 0 | a\\|b, c d | 2,000 |" in text
    assert "| 2 | 4, 5 | 40 | missed |" in text
    assert "gmr evaluate digits --slt 0,1/2,3/4,5" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert report.markdown.with_name(picture).is_file()


def test_scores_and_batches_stand_in_tables_for_other_programs(tmp_path: Path):
    evaluation = an_evaluation(a_run(0), a_run(1))
    report = write_report(evaluation, {}, tmp_path)
    with report.scores.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["evaluation"] for row in rows} == {"this"}
    found = {(int(row["seed"]), row["score"]): row["value"] for row in rows}
    for run in evaluation.runs:
        for name, value in run.scores().items():
            assert float(found[run.seed, name] or "nan") == pytest.approx(value, nan_ok=True)
    with report.history.open(encoding="utf-8", newline="") as file:
        batches = list(csv.DictReader(file))
    assert len(batches) == sum(len(run.history) for run in evaluation.runs)
    assert batches[0]["inlier_rate"] == ""
    assert (batches[N]["batch"], batches[N]["sub_task"]) == (str(N), "1")
    assert float(batches[N]["inlier_rate"]) == 0.05
    assert all(path.is_file() for path in report.files)


def test_shadows_are_set_beside_the_detector_that_decided() -> None:
    true = [Position(N * i, 100 * N * i) for i in (1, 2)]
    said = [Position(batch, 100 * batch) for batch in (N + 3, N + 5)]
    shadow = ShadowScore("paper", match_boundaries(said, true, 1000))
    evaluation = an_evaluation(a_run())
    told = an_evaluation(replace(a_run(), shadows=(shadow,)))
    rows = [line for line in markdown(told).splitlines() if "| shadow |" in line]
    assert rows == ["| paper | shadow | 2 | 1 | 1 | 1 | 300 |"]
    assert "and shadows beside it" not in markdown(evaluation)
    assert "and shadows beside it" in page(told)
    [run] = json.loads(json.dumps(told.to_dict()))["runs"]
    assert run["shadows"][0]["detector"] == "paper"
