"""How a text begins whose first words say that something failed, in English and in Chinese.

Guesses, made to miss rather than to accuse: "no results" and `未找到匹配项` are answers.
"""

import re

_MARKS = r"[\s*!✗✘❌⚠️‼⛔🚫>]{0,6}"

_OPENING = re.compile(
    _MARKS + r"(?:<(?:tool_use_)?error>|[\[(]?(?:message: )?(?:"
    r"an (?:\w+ )?error (?:occurred|has)|"
    r"error(?! ?(?:handl|log\b|page|rate|count|report)|_(?:rate|count)|s?\.\w|s?[:=] ?(?:0|none)\b)"
    r"|(?:exception|failure|fatal|traceback|panic: |uncaught |unhandled |caused by: )"
    r"|unauthori[sz]ed|forbidden|permission (?:denied|error)|access (?:is )?denied"
    r"|denied by|declined by|refused by|rejected(?: by|:)"
    r"|invalid|malformed|command (?:timed out|not found|failed)|bad request|nothing happens"
    r"|no such |no file open|incorrect|wrong\b"
    r"|not (?:quite|correct|valid|allowed|permitted|accepted)\b|not found\b(?!: ?\d)|syntax error"
    r"|(?:unknown|unsupported|illegal) "
    r"(?:tool|command|action|option|syntax|argument|parameter|operation|method|function)"
    r"|unrecogni[sz]ed |missing\b|no (?:replacement was|match found for replac)"
    r"|(?:params|parameters?|arguments?|input) must\b"
    r"|failed(?: to|:)|(?:i )?(?:could(?: not|n't)|can(?:not|'t)) |(?:i am |i'm )?unable to"
    r"|mcp error|(?:i am |i'm )?sorry\b|oops\b|something went wrong"
    r"|(?:operation|request|connection|command|call|query|execution|tool|build|job|login)"
    r"(?: \w+)? (?:error\b|failed\b|timed out)"
    r"|timed out\b|timeout(?::| waiting| exceeded| of \d)"
    r"|(?:https?(?:/[\d.]+)?(?: error| status)?:?|(?:response )?status(?: code)?:?"
    r"|server returned) [45]\d\d\b"
    r"|\d{3} (?:un|bad|not|for|too|internal|serv|gate)"
    r"|(?:<!doctype html>\s*)?(?:<html[^>\n]{0,60}>\s*)?(?:<head>\s*)?<title>\s*[45]\d\d "
    r"|(?-i:E[A-Z]{3,12}: |E: )"
    r"|<\?xml[^>\n]{0,60}>\s*<error>|[\w-]{1,40} : (?:cannot|could|access|the term)"
    r"|curl: \(\d|wget: unable|npm err(?:!|or )"
    r"|(?:segmentation fault|bus error|aborted|killed|illegal instruction)(?: \(core dumped\))?\s*$"
    r"|(?:build|compilation) failed"
    r"|thread '[^'\n]{0,60}' (?:\(\d+\) )?panicked"
    r"|the system cannot find|'[^'\n]{1,60}' is not recognized)"
    r"|\S{1,40} is (?:required|not allowed|not defined|not a valid)"
    r"|(?-i:[\w.]{1,60}(?:Error|Exception))\b"
    r"|\S{1,120}: (?:fatal )?error(?::| [A-Z]{1,3}\d)"
    r"|(?!no |0 )(?:[\w-]{1,30} ){1,2}error:"
    r"|[\w./-]{1,40}: command not found"
    r"|[\w .]{1,40}\bnot found\b"
    r"|\[?(?:your|the) (?:\w+ ){0,2}(?:edit|change|patch|command|input|call)s? "
    r"(?:(?:has|have|was|were|could|did) (?:not\b|failed|introduced)|failed|is not\b)"
    r"|(?:file|path|directory|module|element|tool)\b[^\n]{1,200}?\b"
    r"(?:not found\b|does not exist|already exists))",
    re.IGNORECASE,
)

_CHINESE = re.compile(
    r"[\s*!✗✘❌⚠️‼⛔🚫【\[（(]{0,6}(?:"
    r"(?!没有|无|未|零|不|是否|已(?!过期|超时|失败|被)|修复|解决|忽略|避免|共|\d)"
    r"[\w./ -]{0,24}?(?<![个条次项])"
    r"(?:错误|錯誤|异常|異常|失败|失敗|出错|报错|超时|超時|不足|不够|已?过期|繁忙|被拒绝)"
    r"(?![:：]\s*(?:0|零|无|没有)(?!\d)| ?\d+ ?[个条次项])"
    r"(?=$|[\s:：!！,，。\]】（(）)]|代码|码[:：\s]*\d)"
    r"|[^\n，。：:]{0,60}不存在(?=$|[\s:：,，。!！）)])"
    r"|[^\n，。：:]{0,40}(?:不能为空|为必填|不合法|不正确)(?=$|[\s:：,，。!！）)])"
    r"|(?:未找到|找不到|没有找到)(?!的|[^\n]{0,12}(?:匹配|结果|相关|符合|记录|数据))"
    r"|无法(?!无天|律)|未能|不能(?=打开|读|写|创建|删除|执行|连接|访问|解析|识别)"
    r"|(?:没有|无)权限?(?=$|[\s:：,，。!！]|访问|执行|操作|读|写|删|查)"
    r"|[^\n，。：:]{0,20}(?:拒绝|取消)了?(?:该|此|本次|这次|这个)?(?:操作|请求|调用|执行)(?=$|[\s，。！])"
    r"|拒绝访问|访问被拒|禁止访问|未提供|必须(?:提供|指定|包含)|请先(?:登录|授权)|缺少|缺失(?=$|[\s:：]|参数|字段|必)"
    r"|(?:无效|非法|未知|不支持|不允许)(?=的|错误|参数|命令|输入|请求|操作|路径|选项|工具|格式|[:：\s])"
    r"|抱歉|对不起)"
)

_USAGE = re.compile(
    r"\s*(?:usage|用法)[:：]\s*[\w./$-]{1,80} [^\n]{0,200}?"
    r"(?:[\[<{|]|\.{3}|(?<= )-|(?-i:\b[A-Z]{2,}\b))",
    re.IGNORECASE,
)
"""A synopsis, which a program prints that was called wrongly."""

_ASKS_FOR_HELP = re.compile(r"(?:\B-h|-help|\bhelp|\bman|\busage|用法)\b")


def opens_as_failure(text: str, at: int = 0) -> bool:
    """Whether the words from *at* on say that something failed."""
    if _OPENING.match(text, at):
        return True
    return not text[at : at + 100].isascii() and _CHINESE.match(text, at) is not None


def is_usage(text: str, arguments: str) -> bool:
    """Whether *text* tells how a program is called that was not asked for it."""
    if text[0] not in "uU用 \n":
        return False
    return _USAGE.match(text) is not None and _ASKS_FOR_HELP.search(arguments) is None
