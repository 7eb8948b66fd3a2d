"""Notice an agent that makes the same calls and gets the same results over and over.

Each call of a finished round becomes evidence once: a digest of the action, a digest of the
result, and whether it is a wait that does not count. `advance` folds the evidence of a round into
a tail: the same round again makes the streak longer, another one restarts it, and a round of waits
alone ends it. A streak of 5 and of 10 asks for a reminder to the model, one of 15 for the end of
the run. `NoProgressGuard` holds the tail while a run lives, and `scan_no_progress_notices` drives
the same guard over stored messages, so a restart or a reload goes on where the run stood. All of
it is pure, and no input makes it raise: no clock, no input or output, no logging.
"""

from guard.canonical import VOLATILE_RESULT_KEYS, canonical_args
from guard.digest import (
    action_digest,
    drop_fields,
    evidence,
    keep_fields,
    result_digest,
    round_signature,
)
from guard.exempt import NO_PROGRESS_EXEMPT_CALLS, is_no_progress_exempt
from guard.model import (
    Abort,
    Attachment,
    Evidence,
    Locale,
    Message,
    NoProgressCall,
    NoProgressNotice,
    NoProgressScanResult,
    NoProgressTail,
    Nudge,
    Thresholds,
    Verdict,
)
from guard.notice import (
    apply_no_progress_notices,
    build_no_progress_notice,
    missing_anchors,
    pin_notice,
)
from guard.policy import (
    NO_PROGRESS_ABORT_AT,
    NO_PROGRESS_EXEMPT_TOOLS,
    NO_PROGRESS_NUDGE_AT,
    RULES,
    ExemptRule,
    Normaliser,
    Rules,
    ToolContract,
)
from guard.scan import scan_no_progress_notices
from guard.streak import NoProgressGuard, NoProgressLoopError, advance, verdict_of
from guard.tool_contract import fill_defaults, fold_case, id_set, ignore_order, squeeze_blanks
from guard.volatile import volatile_keys_of

__all__ = [
    "NO_PROGRESS_ABORT_AT",
    "NO_PROGRESS_EXEMPT_CALLS",
    "NO_PROGRESS_EXEMPT_TOOLS",
    "NO_PROGRESS_NUDGE_AT",
    "RULES",
    "VOLATILE_RESULT_KEYS",
    "Abort",
    "Attachment",
    "Evidence",
    "ExemptRule",
    "Locale",
    "Message",
    "NoProgressCall",
    "NoProgressGuard",
    "NoProgressLoopError",
    "NoProgressNotice",
    "NoProgressScanResult",
    "NoProgressTail",
    "Normaliser",
    "Nudge",
    "Rules",
    "Thresholds",
    "ToolContract",
    "Verdict",
    "action_digest",
    "advance",
    "apply_no_progress_notices",
    "build_no_progress_notice",
    "canonical_args",
    "drop_fields",
    "evidence",
    "fill_defaults",
    "fold_case",
    "id_set",
    "ignore_order",
    "is_no_progress_exempt",
    "keep_fields",
    "missing_anchors",
    "pin_notice",
    "result_digest",
    "round_signature",
    "scan_no_progress_notices",
    "squeeze_blanks",
    "verdict_of",
    "volatile_keys_of",
]
