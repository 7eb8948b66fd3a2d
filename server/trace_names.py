"""How spans, their events and their attributes are called.

What begins with `gen_ai` follows OpenTelemetry's conventions for generative AI. They are still in
development, and their own package marks these names as deprecated; so they stand here, where a
change of theirs is a change of one file.
"""

from typing import Final

CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
"""In seconds."""
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""The cached ones included."""
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"

PURPOSE: Final = "headway.request.purpose"
RUN_ID: Final = "headway.run.id"
RUN_TRIGGER: Final = "headway.run.trigger"
RUN_ATTEMPT: Final = "headway.run.attempt"
RUN_STATUS: Final = "headway.run.status"
RUN_CODE: Final = "headway.run.code"
RUN_ROUNDS: Final = "headway.run.rounds"

GUARD_DECISION: Final = "headway.guard.decision"
"""An event of a run's span, one for each judged round."""
GUARD_ROUND: Final = "headway.guard.round"
GUARD_VERDICT: Final = "headway.guard.verdict"
GUARD_RULE: Final = "headway.guard.rule"
GUARD_POLICY: Final = "headway.guard.policy"
GUARD_STREAK: Final = "headway.guard.streak"
GUARD_STOP_REASON: Final = "headway.guard.stop_reason"
GUARD_ACTION_DIGEST: Final = "headway.guard.action_digest"
GUARD_RESULT_DIGEST: Final = "headway.guard.result_digest"
