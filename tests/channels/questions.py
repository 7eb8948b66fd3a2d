"""What runs ask of people, as the tests of both channels tell it."""

from channels.events import Interrupt
from channels.port import Delivery, Question, Turn


def may_write(
    question_id: str = "q1", verdict: str = "", arguments: str = '{"path": "a.txt"}'
) -> Question:
    """Whether a file may be written."""
    interrupt = Interrupt(
        id=question_id,
        call_id=f"call-{question_id}",
        tool_name="write_file",
        reason="tool_call",
        message="要执行 write_file 吗？",
        arguments=arguments,
    )
    return Question(interrupt, verdict)


def which(question_id: str = "q1", verdict: str = "", *options: str) -> Question:
    """What only a person knows."""
    interrupt = Interrupt(
        id=question_id,
        call_id=f"call-{question_id}",
        tool_name="ask_user",
        reason="input_required",
        message="哪个群？",
        options=options,
    )
    return Question(interrupt, verdict)


def asking(turn: Turn, *questions: Question, number: int = 1, answer: str = "") -> Delivery:
    """How *turn* waits for answers, told for the *number*th time."""
    return Delivery(
        f"d{number}-{turn.run_id}",
        1,
        turn,
        "waiting",
        "risk_gate",
        "\n".join(question.interrupt.message for question in questions),
        answer,
        questions,
    )
