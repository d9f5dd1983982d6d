"""A redacted report names no host, no user and no absolute path, in none of the files that it is made of."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.report.redaction.pseudonyms import LEFT_OUT, Pseudonyms
from scalescope.report.redaction.structs import redacted, redacted_config
from scalescope.report.sinks.wandb import WandbSink
from scalescope.report.sinks.wandb_study import log_study
from tests.fuzz.subjects import said_by
from tests.report_samples import devices, environment, step_rows, sweep_rows, write_real_study, write_run
from tests.wandb_runs import options
from tests.wandb_transactions import find_transactions

DATA = Path(__file__).parent / "data"
HOSTS, USERS, SECRET = ("gpu07.cluster.example.org", "gpu08"), ("lovelace", "babbage"), "planted-71c4"
CONFIG = (
    "model: gpt_small\n"
    "data:\n"
    "  path: /mnt/shared data/lovelace/corpus\n"
    "  cache: '/home/babbage/.cache'\n"
    "  url: https://lovelace:planted-71c4@gpu08/x\n"
    "api_key: planted-71c4\n"
    "name: lovelace-exp3\n"
)
MESSAGE = "rank 1 (process 77 on gpu08) has died: /home/lovelace/train.py:33, met at 10.1.2.3:2950"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A study whose every text tells of where it is from; its runs have real traces, analysed by the product."""
    folder = write_real_study(tmp_path_factory.mktemp("lovelace") / "lovelace-study")
    for run in folder.read_children():
        info = run.read_info()
        info.status, info.message = "failed", MESSAGE
        info.hosts, info.launch = list(HOSTS), f"{HOSTS[0]}:4711"
        variables = {"SLURM_JOB_NODELIST": "gpu[07-08]", "NCCL_NET_PLUGIN": "/opt/site/lib/libnccl-net.so"}
        info.environment = msgspec.structs.replace(environment(), host=HOSTS[0], variables=variables)
        info.devices = [msgspec.structs.replace(one, host=HOSTS[one.rank % 2]) for one in devices(2)]
        run.write_info(info)
        run.config.write_text(CONFIG)
    (folder.path / "gpt_ddp_n1").rename(folder.path / "lovelace-n1")
    return folder


def revealing(text: str, *places: Path) -> list[str]:
    """Return what of hosts, users, addresses, secrets and folders stands in a text."""
    words = ["gpu07", "gpu08", "gpu[07", "example.org", *USERS, SECRET, "10.1.2.3", "/home/", "/mnt/", "/opt/site",
             "shared data", *(str(place) for place in places)]  # fmt: skip
    return [word for word in words if word.lower() in text.lower()]


def texts_of(page: str) -> Iterator[str]:
    """Yield a page, and the tables' CSV inside it."""
    yield page
    for data in re.findall(r"base64,([A-Za-z0-9+/=]+)", page):
        yield base64.b64decode(data).decode()


def test_the_report_reveals_nothing_and_stays_readable(study: RunFolder, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()}
    code, said = said_by(["report", str(study.path), "--redact"])
    assert code == 0, said
    page = study.path / "report-redacted.html"
    new = {path for path in study.path.rglob("*") if path.is_file() and path.read_bytes() != before.get(path)}
    assert new == {page}, "it writes the page and nothing else"
    text = page.read_text()
    assert [word for one in texts_of(text) for word in revealing(one, study.path, tmp_path)] == []
    assert "rank 1 (process 77 on node-2) has died: path-" in text and "/train.py:33, met at address-1:2950" in text
    assert "node-1, node-2" in text and "user-1-n1" in text and "user-1-exp3" in text
    assert "NVIDIA H200" in text and f"api_key: {LEFT_OUT}" in text
    plain = tmp_path / "plain.html"
    assert said_by(["report", str(study.path / "lovelace-n1"), "--html", str(plain)])[0] == 0
    assert {"gpu08", "lovelace", "/home/"} <= set(revealing(plain.read_text())), "or this test tests nothing"


def test_two_side_by_side_reveal_nothing(study: RunFolder, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    run = str(study.path / "lovelace-n1")
    words = ["report", run, run, "--redact", "--html", str(page)]
    assert said_by(words)[0] == 0
    assert [word for one in texts_of(page.read_text()) for word in revealing(one, study.path)] == []


def test_what_analyze_writes_besides_reveals_nothing(study: RunFolder, tmp_path: Path) -> None:
    page, answer = tmp_path / "page.html", tmp_path / "answer.json"
    run = study.path / "lovelace-n1"
    assert said_by(["analyze", str(run), "--redact", "--html", str(page), "--json", str(answer)])[0] == 0
    assert revealing(page.read_text(), study.path) == [] == revealing(answer.read_text(), study.path)
    assert json.loads(answer.read_text())["name"] == "user-1-n1"
    assert said_by(["analyze", str(run), "--redact"])[0] == 2


def hurt_sweep(study: RunFolder) -> Path:
    """Let a study's sweep tell of hosts, too, and be called by a user's name."""
    sweep = study.path / "lovelace-sweep"
    if not sweep.exists():
        (study.path / "sweep").rename(sweep)
        info = RunFolder(sweep).read_info()
        info.hosts, info.message = list(HOSTS), MESSAGE
        info.devices = [msgspec.structs.replace(one, host=HOSTS[0]) for one in devices(4)]
        RunFolder(sweep).write_info(info)
    return sweep


def test_fits_of_sweeps_and_logs_reveal_nothing(study: RunFolder, tmp_path: Path) -> None:
    log = tmp_path / "on-gpu08.txt"
    log.write_text((DATA / "nccl_tests" / "plain.txt").read_text().replace("on         vm", f"on {HOSTS[1]}"))
    sweep = hurt_sweep(study)
    for path, shown in ((sweep, "fit of user-1-sweep"), (log, "fit of on-node-")):
        page, answer = tmp_path / "fit.html", tmp_path / "fit.json"
        words = ["fit", str(path), "--html", str(page), "--json", str(answer)]
        assert said_by([*words, "--redact"])[0] == 0
        assert [word for one in texts_of(page.read_text()) for word in revealing(one, study.path, tmp_path)] == []
        assert revealing(answer.read_text(), study.path, tmp_path) == []
        assert shown in page.read_text()
    assert said_by(words)[0] == 0
    assert "gpu08" in revealing(page.read_text()), "or this test tests nothing"
    assert said_by(["fit", str(sweep), "--redact"])[0] == 2


def test_what_whatif_writes_reveals_nothing(study: RunFolder, tmp_path: Path) -> None:
    answer = tmp_path / "whatif.json"
    words = ["whatif", str(study.path / "lovelace-n1"), "--host-free", "--json", str(answer)]
    assert said_by([*words, "--redact"])[0] == 0
    assert revealing(answer.read_text(), study.path) == [] and "user-1-n1" in answer.read_text()
    assert said_by(words)[0] == 0
    assert "lovelace" in revealing(answer.read_text()), "or this test tests nothing"
    assert said_by([*words[:-2], "--redact"])[0] == 2


@pytest.mark.job
def test_a_projection_reveals_nothing_and_leaves_the_study_as_it_is(study: RunFolder, tmp_path: Path) -> None:
    page, answer = tmp_path / "project.html", tmp_path / "project.json"
    hurt_sweep(study)
    before = {path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()}
    words = ["project", str(study.path), "--gpus", "8", "--gpus-per-node", "8", "--html", str(page), "--json"]
    code, said = said_by([*words, str(answer), "--redact"])
    assert code == 0, said
    assert [word for one in texts_of(page.read_text()) for word in revealing(one, study.path, tmp_path)] == []
    assert revealing(answer.read_text(), study.path, tmp_path) == []
    assert json.loads(answer.read_text())["points"]
    assert {path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()} == before


def test_a_comparison_of_logs_reveals_nothing(tmp_path: Path) -> None:
    log, answer = tmp_path / "on-gpu08.txt", tmp_path / "compare.json"
    log.write_text((DATA / "nccl_tests" / "plain.txt").read_text().replace("on         vm", f"on {HOSTS[1]}"))
    words = ["compare", str(log), str(log), "--json", str(answer), "--markdown", str(tmp_path / "compare.md")]
    assert said_by([*words, "--redact"])[0] == 0
    written = answer.read_text() + (tmp_path / "compare.md").read_text()
    assert revealing(written, tmp_path) == []
    assert said_by([*words[:3], "--redact"])[0] == 2


def test_traces_alone_are_known_by_what_they_tell(tmp_path: Path) -> None:
    """Two ranks of two hosts, whose stacks tell of a home; no run.json says who they are."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank, host in enumerate(HOSTS):
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 1, "dur": 900, "pid": 1, "tid": 1}
        call = {"ph": "X", "cat": "python_function", "name": "/home/lovelace/train.py(33): step of lovelace", "ts": 2,
                "dur": 9, "pid": 1, "tid": 1, "args": {"stack": "/home/lovelace/a.py(1);/opt/site/b.py"}}  # fmt: skip
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10, "dur": 500, "pid": 0, "tid": 7,
                  "args": {"stream": 7, "device": 0}}  # fmt: skip
        document = {"host_name": host, "distributedInfo": {"rank": rank, "world_size": 2},
                    "traceEvents": [step, call, kernel]}  # fmt: skip
        with gzip.open(folder / f"{host}_{rank}.17.pt.trace.json.gz", "wt") as file:
            json.dump(document, file)
    packed, answer = tmp_path / "all.json.gz", tmp_path / "answer.json"
    assert said_by(["perfetto", str(folder), "--redact", "--out", str(packed)])[0] == 0
    text = gzip.decompress(packed.read_bytes()).decode()
    assert revealing(text, tmp_path) == [] and "train.py(33): step of user-1" in text and "gemm" in text
    # the kernel has no launch, so nothing can be told, which 2 says; the answer is written all the same
    assert said_by(["analyze", str(folder), "--redact", "--json", str(answer)])[0] == 2
    assert revealing(answer.read_text(), tmp_path) == []


@pytest.mark.job
def test_wandb_is_told_under_pseudonyms(study: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, config, home, command line, alerts, tables, pictures: nothing of it in any file that W&B wrote."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("WANDB_API_KEY", SECRET.ljust(40, "0"))
    monkeypatch.setattr("sys.argv", ["train.py", f"--token={SECRET}", "--data=/home/lovelace/x"])
    folder = write_run(tmp_path / "lovelace-n2", 2, "lovelace-study", CONFIG)
    info = folder.read_info()
    info.hosts, info.message, info.status = list(HOSTS), MESSAGE, "failed"
    folder.write_info(info)
    sink = WandbSink(**options(redact=True), dir=str(folder.path), group="lovelace-study", job_type="train",
                     run_name="lovelace-n2")  # fmt: skip
    sink.start({"data": {"path": "/mnt/shared data/x"}, "api_key": SECRET, "name": "lovelace-exp3"}, "lovelace-n2")
    for row in [*step_rows(2, 8), *sweep_rows()[:4]]:
        sink.log(row)
    sink.artifact(folder.path)
    sink.close("failed")
    analysed = study.path / "lovelace-n1"
    log_study(RunFolder(analysed), options(redact=True))
    for place in (folder.path, analysed):
        files = [path for path in (place / "wandb").rglob("*") if path.is_file()]
        assert find_transactions(place) in files
        found = {path.name: revealing(path.read_bytes().decode("latin-1"), place, tmp_path) for path in files}
        assert {name: words for name, words in found.items() if words} == {}
    assert b"user-1-n2" in find_transactions(folder.path).read_bytes()
    assert list((analysed / "wandb").rglob("media/images/**/*.png")), "pictures hold no paths"


def test_pseudonyms_are_the_same_everywhere_and_words_stay_words() -> None:
    known = Pseudonyms(["gpu07.cluster.example.org", "compute"], ["ada"])
    assert known.text("gpu07 waits for GPU07.cluster.example.org") == "node-1 waits for node-1"
    for text in ("10 GB/s", "(n-1)/n", "tokens/s", "canada", "0000:04:00.0", "NVIDIA H200", "a / b", "nccl 2.28.9",
                 "6(N − N_position) + 12·L·H·Q·T", "127.0.0.1:80", "http://localhost/x", "</td>"):  # fmt: skip
        assert known.text(text) == text
    assert known.text("see /home/eve/a.py:3 and /home/eve/b.py") == "see path-1/a.py:3 and path-1/b.py"
    assert known.text("eve_job of ada-2 with -I/home/eve/include") == "user-2_job of user-1-2 with -Ipath-2"
    assert redacted_config({"hf_token": "x", "tokens": 3, "dir": "/a b/c", "n": [1, "ada"]}, known) == {
        "hf_token": LEFT_OUT, "tokens": 3, "dir": "path-3", "n": [1, "user-1"]}  # fmt: skip


def test_what_code_decides_by_stays_though_a_host_is_called_like_it() -> None:
    device = msgspec.structs.replace(devices(1)[0], host="cuda")
    changed = redacted(device, Pseudonyms(["cuda"]))
    assert (changed.host, changed.kind) == ("node-1", "cuda")
