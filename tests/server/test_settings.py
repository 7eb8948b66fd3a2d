"""Settings: what is read, what stops the start, and that no value is ever shown."""

import logging
from pathlib import Path

import pytest

from server.errors import SettingsError
from server.settings import VARIABLES, Settings, load_settings

SECRET = "s3cr3t-value"


def load(toml: str | None = None, folder: Path | None = None, **variables: str) -> Settings:
    environ = {"HOME": "/home/somebody"}
    environ |= {f"HEADWAY_{name}": value for name, value in variables.items()}
    if toml is not None:
        assert folder is not None, "the file needs a place"
        path = folder / "headway.toml"
        path.write_text(toml, "utf-8")
        environ["HEADWAY_CONFIG"] = str(path)
    return load_settings(environ)


def refusal(toml: str | None = None, folder: Path | None = None, **variables: str) -> str:
    with pytest.raises(SettingsError) as refused:
        load(toml, folder, **variables)
    return str(refused.value)


def test_without_any_variable_the_server_is_local_and_needs_no_key() -> None:
    settings = load()
    assert (settings.host, settings.port) == ("127.0.0.1", 8765)
    assert settings.data_dir == Path("/home/somebody/.local/share/headway")
    assert settings.workspace == settings.data_dir / "workspace"
    assert settings.database_url.get_secret_value() == f"sqlite:///{settings.data_dir}/headway.db"
    assert settings.model.is_builtin
    assert settings.model.context_tokens == 128_000
    assert (settings.on_restart, settings.locale, settings.log_level) == ("resume", "zh-CN", "INFO")
    assert settings.tokens == ()


def test_data_folder_follows_the_xdg_variable() -> None:
    assert load_settings({"XDG_DATA_HOME": "/shared"}).data_dir == Path("/shared/headway")


def test_what_hangs_on_the_data_folder_moves_with_it(tmp_path: Path) -> None:
    settings = load(DATA_DIR=str(tmp_path))
    assert settings.workspace == tmp_path / "workspace"
    assert settings.database_url.get_secret_value() == f"sqlite:///{tmp_path}/headway.db"


def test_relative_folders_become_absolute() -> None:
    assert load(DATA_DIR="data").data_dir == Path.cwd() / "data"


def test_empty_variables_count_as_absent() -> None:
    assert load(PORT="", TOKENS="", MODEL="").port == 8765


def test_tokens_are_named_or_the_admins() -> None:
    tokens = load(TOKENS="alice=a1, bob=b=2 ,bare,padded==").tokens
    assert [(t.user, t.secret.get_secret_value()) for t in tokens] == [
        ("alice", "a1"),
        ("bob", "b=2"),
        ("admin", "bare"),
        ("admin", "padded=="),
    ]


def test_a_model_needs_its_address_and_its_name() -> None:
    assert refusal(MODEL="m").startswith("HEADWAY_MODEL_BASE_URL: ")
    assert refusal(MODEL_API_KEY=SECRET).startswith("HEADWAY_MODEL_BASE_URL: ")
    assert refusal(MODEL_BASE_URL="http://127.0.0.1:1/v1").startswith("HEADWAY_MODEL: ")
    model = load(MODEL_BASE_URL="http://127.0.0.1:1/v1/", MODEL="m", MODEL_API_KEY=SECRET).model
    assert (model.base_url, model.name, model.is_builtin) == ("http://127.0.0.1:1/v1", "m", False)
    assert model.api_key is not None
    assert model.api_key.get_secret_value() == SECRET


def test_origins_are_kept_as_browsers_write_them() -> None:
    settings = load(PUBLIC_ORIGINS="https://Chat.Example.com:443/, null, tauri://localhost")
    assert settings.public_origins == ("https://chat.example.com", "null", "tauri://localhost")


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("PORT", SECRET, "integer"),
        ("PORT", "70000", "65535"),
        ("LOCALE", SECRET, "'zh-CN' or 'en'"),
        ("ON_RESTART", SECRET, "'resume' or 'fail'"),
        ("LOG_LEVEL", SECRET, "'DEBUG'"),
        ("TIMEZONE", f"Mars/{SECRET}", "Asia/Shanghai"),
        ("TIMEZONE", f"/etc/{SECRET}", "Asia/Shanghai"),
        ("DATABASE_URL", f"mysql://root:{SECRET}@h/d", "postgresql://"),
        ("PUBLIC_ORIGINS", f"http://h:{SECRET}", "https://chat.example.com"),
        ("PUBLIC_ORIGINS", f"https://h/{SECRET}", "https://chat.example.com"),
        ("MODEL_BASE_URL", f"ftp://{SECRET}", "http://"),
        ("MODEL_BASE_URL", f"http://[{SECRET}", "http://"),
        ("MODEL_CONTEXT_TOKENS", SECRET, "integer"),
        ("MODEL_CONTEXT_TOKENS", "5", "4096"),
        ("TOKENS", f"a={SECRET},b={SECRET}", "twice"),
        ("TOKENS", f"a={SECRET}é", "ASCII"),
        ("CONFIG", f"/nowhere/{SECRET}.toml", "cannot be read"),
    ],
)
def test_a_wrong_value_stops_the_start_with_its_name_only(name: str, value: str, hint: str) -> None:
    text = refusal(None, None, **{name: value})
    assert text.startswith(f"HEADWAY_{name}: ")
    assert hint in text
    assert SECRET not in text


def test_no_secret_is_in_the_settings_when_they_are_printed() -> None:
    settings = load(
        TOKENS=f"a={SECRET}",
        DATABASE_URL=f"postgresql://u:{SECRET}@h/d",
        MODEL_BASE_URL="http://127.0.0.1:1",
        MODEL="m",
        MODEL_API_KEY=SECRET,
        FEISHU_APP_ID="cli_1",
        FEISHU_APP_SECRET=SECRET,
        FEISHU_ENCRYPT_KEY=SECRET,
        DINGTALK_CLIENT_ID="ding1",
        DINGTALK_CLIENT_SECRET=SECRET,
    )
    assert SECRET not in repr(settings)
    assert SECRET not in settings.model_dump_json()


def test_bots_stand_in_the_environment_and_in_the_file(tmp_path: Path) -> None:
    settings = load(
        '[[feishu]]\napp_id = "cli_2"\napp_secret = "x"\nallow = ["ou_1"]\n',
        tmp_path,
        FEISHU_APP_ID="cli_1",
        FEISHU_APP_SECRET="y",
        FEISHU_ALLOW="*",
        FEISHU_DOMAIN="http://127.0.0.1:9/",
        DINGTALK_CLIENT_ID="ding1",
        DINGTALK_CLIENT_SECRET="z",
    )
    first, second = settings.feishu
    assert (first.app_id, first.allow, first.domain) == ("cli_1", ("*",), "http://127.0.0.1:9")
    assert (second.app_id, second.allow, second.mode) == ("cli_2", ("ou_1",), "websocket")
    assert settings.dingtalk[0].robot_code == "ding1"


def test_half_a_bot_stops_the_start(tmp_path: Path) -> None:
    assert refusal(FEISHU_APP_ID="cli_1") == "HEADWAY_FEISHU_APP_SECRET: is missing"
    assert refusal(DINGTALK_ALLOW="*") == "HEADWAY_DINGTALK_CLIENT_ID: is missing"
    in_file = refusal('[[feishu]]\napp_id = "cli_1"\n', tmp_path)
    assert in_file == "HEADWAY_CONFIG [[feishu]] number 1 app_secret: is missing"


def test_a_webhook_that_anybody_could_call_stops_the_start() -> None:
    text = refusal(FEISHU_APP_ID="a", FEISHU_APP_SECRET="b", FEISHU_MODE="webhook")
    assert "HEADWAY_FEISHU" in text
    assert "verification_token" in text


def test_one_bot_given_twice_stops_the_start(tmp_path: Path) -> None:
    toml = '[[feishu]]\napp_id = "cli_1"\napp_secret = "x"\n'
    assert "twice" in refusal(toml, tmp_path, FEISHU_APP_ID="cli_1", FEISHU_APP_SECRET="y")


def test_sections_of_the_file_are_read(tmp_path: Path) -> None:
    settings = load(
        "[compaction]\ntrigger_ratio = 0.5\n[shell]\nenabled = false\n"
        '[mcp.notes]\ncommand = "notes"\n[policy]\nscheduled = "unattended@1"\n',
        tmp_path,
    )
    assert (settings.compaction.trigger_ratio, settings.compaction.keep_rounds) == (0.5, 6)
    assert not settings.shell.enabled
    assert settings.mcp["notes"].command == "notes"
    assert (settings.policy.main, settings.policy.scheduled) == ("default@1", "unattended@1")


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[compactoin]\n", "[compactoin] is not a section; did you mean compaction?"),
        ("[compaction]\nratio = 1\n", "HEADWAY_CONFIG [compaction] ratio: is not known here"),
        ("[shell]\nenabled = 3\n", "HEADWAY_CONFIG [shell] enabled: "),
        ("feishu = 1\n", "HEADWAY_CONFIG [feishu]: "),
        ("port = 1\n", "[port] is not a section"),
        ("a = \n", "the file is not TOML"),
    ],
)
def test_a_slip_in_the_file_stops_the_start_with_its_place(
    toml: str, expected: str, tmp_path: Path
) -> None:
    assert expected in refusal(toml, tmp_path)


def test_unknown_variables_are_named_with_the_nearest_known_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        load(PROT=SECRET)
    assert caplog.messages == ["HEADWAY_PROT is not a setting; did you mean HEADWAY_PORT?"]


def test_the_environment_wins_over_the_env_file(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text('HEADWAY_PORT=1\nHEADWAY_LOCALE="en"\nHEADWAY_TOKENS=a=${HOME}\n', "utf-8")
    settings = load_settings({"HEADWAY_PORT": "2", "HOME": "/h"}, env_file)
    assert (settings.port, settings.locale) == (2, "en")
    assert settings.tokens[0].secret.get_secret_value() == "${HOME}"


def test_a_missing_env_file_is_no_error(tmp_path: Path) -> None:
    assert load_settings({}, tmp_path / ".env").port == 8765


def test_every_variable_is_read() -> None:
    assert len(VARIABLES) == 30
    assert all(name.startswith("HEADWAY_") for name in VARIABLES)


def test_settings_cannot_be_changed() -> None:
    settings = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1
