"""What bots say beside answers."""

import pytest

from channels import sentences
from channels.port import Locale

LOCALES: list[Locale] = ["zh-CN", "en"]


def said(locale: Locale) -> dict[str, str]:
    """Every sentence, by its name."""
    return {
        "queued": sentences.queued(locale, 3),
        "stale": sentences.stale(locale, 12),
        "not_received": sentences.not_received(locale),
        "not_allowed": sentences.not_allowed(locale, "ou_alice"),
        "unreadable": sentences.unreadable(locale),
        "bare_mention": sentences.bare_mention(locale),
        "files_forbidden": sentences.files_forbidden(locale),
        "file_unavailable": sentences.file_unavailable(locale, "a.pdf"),
        "file_too_big": sentences.file_too_big(locale, "a.pdf", 30),
        "no_transcript": sentences.no_transcript(locale),
        "stopping": sentences.stopping(locale),
        "not_stopped": sentences.not_stopped(locale),
        "already_over": sentences.already_over(locale),
        "taken": sentences.taken(locale),
        "how_to_answer": sentences.how_to_answer(locale, 2, 1, is_group=True),
        "unasked": sentences.unasked(locale),
        "no_answer": sentences.no_answer(locale),
        "failed": sentences.failed(locale),
        "cut": sentences.cut(locale),
        "refused_content": sentences.refused_content(locale),
    }


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def test_every_sentence_is_in_the_language_asked_for() -> None:
    assert all(is_chinese(text) for text in said("zh-CN").values())
    assert not any(is_chinese(text) for text in said("en").values())


def test_no_sentence_of_the_module_is_left_out_here() -> None:
    public = {
        name
        for name, value in vars(sentences).items()
        if getattr(value, "__module__", "") == sentences.__name__ and not name.startswith("_")
    }
    assert public == set(said("en"))


@pytest.mark.parametrize("locale", LOCALES)
def test_facts_stand_in_the_sentence(locale: Locale) -> None:
    texts = said(locale)
    assert "3" in texts["queued"]
    assert "/stop" in texts["queued"]
    assert "12" in texts["stale"]
    assert "ou_alice" in texts["not_allowed"]
    assert "/help" in texts["bare_mention"]
    assert "a.pdf" in texts["file_unavailable"]
    assert "30 MB" in texts["file_too_big"]


def test_one_message_is_not_several() -> None:
    assert "1 message came" in sentences.stale("en", 1)
    assert "2 messages came" in sentences.stale("en", 2)


def test_a_lost_message_is_named_with_the_words_people_know() -> None:
    assert sentences.not_received("zh-CN") == "刚才的消息没有收到，请重发。"
