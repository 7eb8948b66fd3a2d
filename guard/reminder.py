"""What is said of a decision: to the model, to the user, and before the last answer of a run.

Like those in `guard/notice.py`, these texts are put together nowhere else and must stay the same
byte for byte.
"""

from collections.abc import Mapping
from types import MappingProxyType

from guard.model import Locale
from guard.notice import build_loop_text, joined_names, loop_notice
from guard.rounds import LOOP_CODE, Decision

_Texts = Mapping[Locale, str]


def _texts(chinese: str, english: str) -> _Texts:
    return MappingProxyType({"zh-CN": chinese, "en": english})


_NOTICES: Mapping[str, _Texts] = MappingProxyType(
    {
        "repeat_cycle": _texts(
            "检测到重复调用:最近 {streak} 轮以相同参数调用了同一组工具(工具:{tools})。\n"
            "无论结果如何,都请不要再次发起相同的调用。请检查已有结果,调整参数、改用其他工具,\n"
            "或直接向用户说明结论与当前阻塞。",
            "Repeated calls detected: the last {streak} rounds made the same tool calls with the "
            "same arguments (tools: {tools}).\n"
            "Whatever came of them, do not make these calls again. Look at the results you have, "
            "change the arguments, use another tool,\n"
            "or tell the user your conclusion and what blocks you.",
        ),
        "period": _texts(
            "检测到循环:最近 {streak} 轮是同样的 {period} 轮依次重复了 {laps} 遍,结果没有变化"
            "(本轮工具:{tools})。\n"
            "请跳出这个循环:改变做法,或基于已有结果直接向用户说明结论与当前阻塞。",
            "A cycle was detected: in the last {streak} rounds the same {period} rounds came "
            "{laps} times in turn, with the same results (tools of this round: {tools}).\n"
            "Leave the cycle: change your approach, or tell the user your conclusion and what "
            "blocks you, from the results you have.",
        ),
        "interleaved_repeat": _texts(
            "检测到反复出现的调用:最近几轮中,这一轮的工具调用与结果已出现 {streak} 次"
            "(工具:{tools})。\n"
            "其间的其他调用没有改变它的结果。请改变做法,或基于已有结果直接向用户说明结论与当前阻塞。",
            "A recurring call was detected: the calls and results of this round came {streak} "
            "times in the last rounds (tools: {tools}).\n"
            "What you did in between did not change them. Change your approach, or tell the user "
            "your conclusion and what blocks you, from the results you have.",
        ),
        "no_news": _texts(
            "最近几轮没有新信息:其中 {streak} 轮的工具调用与结果此前都已出现过"
            "(本轮工具:{tools})。\n"
            "请尝试此前没有做过的事,或基于已有结果直接向用户说明结论与当前阻塞。",
            "The last rounds brought nothing new: in {streak} of them every tool call and result "
            "was seen before (tools of this round: {tools}).\n"
            "Try something that you have not done yet, or tell the user your conclusion and what "
            "blocks you, from the results you have.",
        ),
        "little_news": _texts(
            "最近几轮几乎没有新信息:其中 {streak} 轮的工具调用此前都已做过,结果也大多相同"
            "(本轮工具:{tools})。\n"
            "请不要再重复这些调用:换一种做法,或基于已有结果直接向用户说明结论与当前阻塞。",
            "The last rounds brought hardly anything new: in {streak} of them every tool call was "
            "made before, with mostly the same result (tools of this round: {tools}).\n"
            "Do not make these calls again: take another way, or tell the user your conclusion "
            "and what blocks you, from the results you have.",
        ),
        "same_error": _texts(
            "检测到重复失败:已有 {streak} 轮因同一原因失败(本轮工具:{tools})。\n"
            "只改写参数不能解决问题。请找出失败原因,换一种做法,或直接向用户说明当前阻塞。",
            "Repeated failure detected: {streak} rounds failed for the same reason (tools of this "
            "round: {tools}).\n"
            "Rewording the arguments does not help. Find out why it fails, take another way, or "
            "tell the user what blocks you.",
        ),
        "same_result": _texts(
            "最近 {streak} 轮改变了参数,但得到的结果完全相同(工具:{tools})。\n"
            "请确认这些调用是否仍有必要;如无新信息,请改变做法或直接给出结论。",
            "The last {streak} rounds changed the arguments and got exactly the same result "
            "(tools: {tools}).\n"
            "Make sure that these calls are still of use; if they tell nothing new, change your "
            "approach or give your conclusion.",
        ),
        "budget_wait": _texts(
            "等待预算已用去一半以上:已等待 {streak} 轮(工具:{tools})。\n"
            "请结束等待:处理已完成的部分、停止不再需要的任务,或向用户说明仍在等待什么。",
            "More than half of the budget for waiting is spent: {streak} rounds only waited "
            "(tools: {tools}).\n"
            "Bring the waiting to an end: go on with what is done, stop what is no longer needed, "
            "or tell the user what you are still waiting for.",
        ),
        "budget_rounds": _texts(
            "本次执行的轮数预算已用去五分之四(已执行 {streak} 轮)。请尽快收尾,给出结论。",
            "Four fifths of this run's budget of rounds is spent ({streak} rounds so far). "
            "Finish soon and give your conclusion.",
        ),
        "budget_time": _texts(
            "本次执行的时间预算已用去五分之四(已执行 {streak} 轮)。请尽快收尾,给出结论。",
            "Four fifths of this run's time is spent ({streak} rounds so far). "
            "Finish soon and give your conclusion.",
        ),
        "budget_tokens": _texts(
            "本次执行的 token 预算已用去五分之四(已执行 {streak} 轮)。请尽快收尾,给出结论。",
            "Four fifths of this run's tokens are spent ({streak} rounds so far). "
            "Finish soon and give your conclusion.",
        ),
        "budget_calls": _texts(
            "本次执行的工具调用预算已用去五分之四(已执行 {streak} 轮)。请尽快收尾,给出结论。",
            "Four fifths of this run's tool calls are spent ({streak} rounds so far). "
            "Finish soon and give your conclusion.",
        ),
        "budget_retries": _texts(
            "本次执行的重试预算已用去五分之四(已执行 {streak} 轮)。"
            "请不要再重试不可用的工具,改用其他办法或向用户说明。",
            "Four fifths of this run's retries are spent ({streak} rounds so far). "
            "Do not try tools again that cannot be reached: take another way or tell the user.",
        ),
        "budget_cost": _texts(
            "本次执行的费用预算已用去五分之四(已执行 {streak} 轮)。请尽快收尾,给出结论。",
            "Four fifths of what this run may cost is spent ({streak} rounds so far). "
            "Finish soon and give your conclusion.",
        ),
        "no_progress": _texts(
            "任务没有进展:最近 {streak} 轮没有改变任务状态(未变化:{fields};本轮工具:{tools})。\n"
            "请改变做法以推进这些状态;如信息不足或无法完成,请直接向用户说明。",
            "The task does not move: its state did not change (rounds in a row: {streak}; "
            "unchanged: {fields}; tools of this round: {tools}).\n"
            "Change your approach so that it moves; if something is missing or it cannot be done, "
            "tell the user.",
        ),
        "handoff": _texts(
            "任务没有进展:最近 {streak} 轮没有改变任务状态(未变化:{fields};本轮工具:{tools})。\n"
            "请改变做法以推进这些状态;如当前能力无法完成,请说明情况,以便转交人工处理。",
            "The task does not move: its state did not change (rounds in a row: {streak}; "
            "unchanged: {fields}; tools of this round: {tools}).\n"
            "Change your approach so that it moves; if you cannot do it, say how things stand, so "
            "that a person can take over.",
        ),
        "completed": _texts(
            "任务目标已达成。请不要再调用工具,直接给出最终答复。",
            "The goal of the task is reached. Make no more tool calls and give the final answer.",
        ),
    }
)
"""By the rule of a loop, else by the code."""

_NEXT_IS_LAST = _texts(
    "若再次发起相同的调用,系统将自动中止本次执行。",
    "If you make the same calls once more, the system will stop this run.",
)

_SUCH_ROUNDS = _texts(
    "若继续,系统将在此类轮次达到 {limit} 轮时自动中止本次执行。",
    "If this goes on, the system will stop this run after {limit} such rounds.",
)

_AT_LIMIT: Mapping[str, _Texts] = MappingProxyType(
    {
        "repeat_cycle": _NEXT_IS_LAST,
        "period": _texts(
            "若继续循环,系统将在第 {limit} 遍自动中止本次执行。",
            "If the cycle goes on, the system will stop this run when it has come {limit} times.",
        ),
        "interleaved_repeat": _texts(
            "若继续,系统将在其出现第 {limit} 次时自动中止本次执行。",
            "If this goes on, the system will stop this run when they have come {limit} times.",
        ),
        "no_news": _SUCH_ROUNDS,
        "little_news": _SUCH_ROUNDS,
        "same_error": _texts(
            "若继续,系统将在失败达到 {limit} 轮时自动中止本次执行。",
            "If this goes on, the system will stop this run after {limit} such rounds.",
        ),
        "no_progress": _texts(
            "若继续无进展,系统将在第 {limit} 轮自动中止本次执行。",
            "If nothing moves, the system will stop this run after {limit} such rounds.",
        ),
        "handoff": _texts(
            "若继续无进展,系统将在第 {limit} 轮中止本次执行并转交人工处理。",
            "If nothing moves, the system will stop this run after {limit} such rounds and hand it "
            "to a person.",
        ),
    }
)
"""What is added where the run ends if it goes on; budgets and waits say so by themselves."""

_USED_UP = _texts(
    "预算用尽后,系统将自动中止本次执行。",
    "When the budget is spent, the system will stop this run.",
)

_STOPS: Mapping[str, _Texts] = MappingProxyType(
    {
        "repeat_cycle": _texts(
            "检测到 Agent 连续 {streak} 轮以相同参数调用同一组工具({tools}),"
            "已自动中止本次执行以避免无限循环。请调整需求描述后重试。",
            "The agent made the same tool calls with the same arguments ({tools}) {streak} rounds "
            "in a row. This run was stopped to avoid an endless loop. "
            "Please adjust your request and try again.",
        ),
        "period": _texts(
            "检测到 Agent 将同样的 {period} 轮工具调用依次重复了 {laps} 遍({tools})"
            "且结果没有任何变化,已自动中止本次执行以避免无限循环。请调整需求描述后重试。",
            "The agent went through the same {period} rounds of tool calls {laps} times ({tools}) "
            "with no change in the results. This run was stopped to avoid an endless loop. "
            "Please adjust your request and try again.",
        ),
        "interleaved_repeat": _texts(
            "检测到 Agent 在最近几轮中 {streak} 次重复同样的工具调用({tools})"
            "且结果没有变化,已自动中止本次执行以避免无限循环。请调整需求描述后重试。",
            "The agent came back to the same tool calls ({tools}) {streak} times within a few "
            "rounds with no change in the results. This run was stopped to avoid an endless loop. "
            "Please adjust your request and try again.",
        ),
        "no_news": _texts(
            "检测到 Agent 最近几轮中有 {streak} 轮没有得到任何新信息({tools}),"
            "已自动中止本次执行以避免无限循环。请调整需求描述后重试。",
            "In {streak} of its last rounds the agent learned nothing new ({tools}). "
            "This run was stopped to avoid an endless loop. "
            "Please adjust your request and try again.",
        ),
        "little_news": _texts(
            "检测到 Agent 最近几轮中有 {streak} 轮重复此前的工具调用({tools})且结果大多相同,"
            "已自动中止本次执行以避免无限循环。请调整需求描述后重试。",
            "In {streak} of its last rounds the agent made tool calls again ({tools}) and got "
            "mostly the same results. This run was stopped to avoid an endless loop. "
            "Please adjust your request and try again.",
        ),
        "same_error": _texts(
            "检测到 Agent 有 {streak} 轮因同一原因失败({tools}),"
            "已自动中止本次执行以避免无限循环。请处理该问题或调整需求描述后重试。",
            "{streak} rounds of the agent failed for the same reason ({tools}). "
            "This run was stopped to avoid an endless loop. "
            "Please mend the cause or adjust your request and try again.",
        ),
        "budget_wait": _texts(
            "等待时间已用尽(已等待 {streak} 轮),已自动中止本次执行。请确认所等待的任务后重试。",
            "The budget for waiting is spent ({streak} rounds). This run was stopped. "
            "Please see to what it waited for and try again.",
        ),
        "budget_rounds": _texts(
            "本次执行已达到轮数上限({streak} 轮),已自动中止。可发送消息继续。",
            "This run reached its limit of rounds ({streak}) and was stopped. "
            "Send a message to go on.",
        ),
        "budget_time": _texts(
            "本次执行已达到时间上限,已自动中止。可发送消息继续。",
            "This run reached its time limit and was stopped. Send a message to go on.",
        ),
        "budget_tokens": _texts(
            "本次执行已达到 token 上限,已自动中止。可发送消息继续。",
            "This run reached its token limit and was stopped. Send a message to go on.",
        ),
        "budget_calls": _texts(
            "本次执行已达到工具调用次数上限,已自动中止。可发送消息继续。",
            "This run reached its limit of tool calls and was stopped. Send a message to go on.",
        ),
        "budget_retries": _texts(
            "本次执行因工具不可用而重试的次数已达上限,已自动中止。请稍后重试。",
            "This run reached its limit of retries of tools that could not be reached, and was "
            "stopped. Please try again later.",
        ),
        "budget_cost": _texts(
            "本次执行已达到费用上限,已自动中止。可发送消息继续。",
            "This run reached its cost limit and was stopped. Send a message to go on.",
        ),
        "no_progress": _texts(
            "任务连续 {streak} 轮没有进展(未变化:{fields}),已自动停止本次执行。"
            "请补充信息或调整需求描述后重试。",
            "The task made no progress (rounds in a row: {streak}; unchanged: {fields}), and this "
            "run was stopped. Please add what is missing or adjust your request and try again.",
        ),
        "handoff": _texts(
            "该任务需要人工处理,已停止本次执行并转交人工。",
            "This task needs a person: this run was stopped and handed over.",
        ),
        "completed": _texts(
            "任务目标已达成,本次执行已完成。",
            "The goal of the task is reached, and this run is complete.",
        ),
    }
)
"""By the rule of a loop, else by the code."""

_LAST_TURN = _texts(
    "系统即将结束本次执行,本次执行中不能再调用任何工具。原因:{reason}\n"
    "请立即直接答复用户:已经确认了什么、还缺少什么、为什么停止。不要声称完成了未完成的事。",
    "The system is about to end this run; no more tools can be called in it. Reason: {reason}\n"
    "Answer the user now: what is confirmed, what is missing, and why it stops. "
    "Do not claim that anything is done which is not.",
)

_REASONS: Mapping[str, _Texts] = MappingProxyType(
    {
        "loop": _texts(
            "连续或反复的工具调用没有带来新的结果(工具:{tools})。",
            "repeated tool calls brought nothing new (tools: {tools}).",
        ),
        "budget": _texts("本次执行的预算已用尽。", "the budget of this run is spent."),
        "no_progress": _texts(
            "任务状态连续 {streak} 轮没有变化(未变化:{fields})。",
            "the state of the task did not change (rounds in a row: {streak}; unchanged: "
            "{fields}).",
        ),
        "handoff": _texts(
            "该任务将转交人工处理。",
            "the task is handed to a person.",
        ),
    }
)

_DONE = _texts(
    "任务目标已达成。请现在直接给出最终答复,不要再调用工具。",
    "The goal of the task is reached. Give the final answer now, without tools.",
)


class RuleStop(Exception):
    """A rule beside the default one ended the run; the text is for the user."""

    def __init__(self, decision: Decision, locale: Locale = "zh-CN") -> None:
        super().__init__(build_stop_text(decision, locale))
        self.decision = decision


def build_notice(decision: Decision, locale: Locale = "zh-CN") -> str:
    """The reminder that the model reads; it announces the end where `Decision.limit` says so."""
    if _is_default(decision):
        return loop_notice(decision.streak, decision.tools, decision.limit, locale)
    key = _key(decision)
    text = _filled(_NOTICES[key], decision, locale)
    end = _USED_UP if key.startswith("budget_") else _AT_LIMIT.get(key)
    if not decision.limit or end is None:
        return text
    return f"{text}\n{_filled(end, decision, locale)}"


def build_stop_text(decision: Decision, locale: Locale = "zh-CN") -> str:
    """Why the run ended, for the user."""
    if _is_default(decision):
        return build_loop_text(decision.streak, decision.tools, locale)
    return _filled(_STOPS[_key(decision)], decision, locale)


def build_last_turn_notice(decision: Decision, locale: Locale = "zh-CN") -> str:
    """What the model is told before it answers once more, without tools."""
    if decision.code == "completed":
        return _DONE[locale]
    reason = _filled(_REASONS[_kind(decision.code)], decision, locale)
    return _LAST_TURN[locale].format(reason=reason)


def _kind(code: str) -> str:
    if code == LOOP_CODE:
        return "loop"
    return "budget" if code.startswith("budget_") else code


def _is_default(decision: Decision) -> bool:
    return decision.code == LOOP_CODE and decision.rule == "no_progress"


def _key(decision: Decision) -> str:
    return decision.rule if decision.code == LOOP_CODE else decision.code


def _filled(texts: _Texts, decision: Decision, locale: Locale) -> str:
    return texts[locale].format(
        streak=decision.streak,
        laps=decision.laps,
        period=decision.period,
        limit=decision.limit,
        tools=joined_names(decision.tools),
        fields=joined_names(decision.fields),
    )
