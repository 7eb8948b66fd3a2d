/** The page's own words. What the server sends is shown as sent. */

const CHINESE = {
  appName: "Headway",
  newSession: "新会话",
  sessions: "会话",
  searchSessions: "搜索会话",
  noSessions: "还没有会话",
  noMatch: "没有匹配的会话",
  openMenu: "打开会话列表",
  closeMenu: "关闭会话列表",
  rename: "重命名",
  remove: "删除",
  cancel: "取消",
  confirmDelete: "删除这个会话？",
  confirmDeleteText: "“{title}”的消息将一并删除，无法恢复。",
  language: "English",
  logout: "退出登录",
  theme: "外观",
  themeAuto: "跟随系统",
  themeLight: "浅色",
  themeDark: "深色",
  loginTitle: "登录 Headway",
  loginText: "粘贴访问令牌。它在服务启动时打印的登录链接里（#token= 之后）。",
  loginToken: "访问令牌",
  loginSubmit: "登录",
  loginWrong: "令牌不正确。",
  loginFailed: "暂时无法登录：{reason}",
  welcome: "有什么可以帮你？",
  welcomeText: "发出第一条消息，就会新建一个会话。",
  messages: "对话内容",
  composer: "输入消息",
  placeholder: "输入消息…",
  placeholderBusy: "可以继续输入，消息会排队…",
  hintIdle: "Enter 发送 · Shift+Enter 换行",
  hintBusy: "Enter 排队 · {modifier}+Enter 插话",
  send: "发送",
  enqueue: "排队发送",
  steer: "插话",
  steerTitle: "在下一轮加入正在执行的任务",
  stop: "停止",
  stopping: "正在停止…",
  attach: "添加图片或文件",
  dropHere: "松开即可上传",
  uploading: "上传中…",
  uploadFailed: "{name} 上传失败：{reason}",
  tooLarge: "{name} 超过了 {limit} 的大小上限",
  removeFile: "移除 {name}",
  editing: "正在编辑消息，发送后从这里重新开始",
  edit: "编辑并重发",
  copy: "复制",
  copied: "已复制",
  regenerate: "重新回答",
  retry: "重试",
  sending: "发送中…",
  waitingForConnection: "等待连接后发送…",
  steered: "将在下一轮加入",
  notSent: "未发送：{reason}",
  discard: "丢弃",
  queued: "排队",
  queuedAt: "排队第 {position} 条",
  paused: "队列已暂停",
  resume: "继续执行",
  removeQueued: "移出队列",
  thinking: "思考中…",
  thought: "思考过程",
  round: "第 {round} 轮",
  running: "正在执行",
  jumpToLatest: "回到最新",
  loadOlder: "加载更早的消息",
  loading: "加载中…",
  compacted: "上下文已压缩",
  compacting: "正在压缩上下文…",
  compactionFailed: "上下文压缩失败",
  stopped: "已停止",
  undelivered: "结果未能送达 {surface}：{reason}",
  failed: "执行失败",
  runId: "运行编号",
  arguments: "参数",
  result: "结果",
  noResult: "没有结果",
  emptyResult: "（空）",
  showAll: "显示全部（{size}）",
  showLess: "收起",
  truncated: "结果已截断",
  fullResult: "查看完整结果",
  exitCode: "退出码 {code}",
  phase_calling: "准备中",
  phase_running: "执行中",
  phase_done: "完成",
  phase_failed: "出错",
  phase_stopped: "未完成",
  status_IDLE: "空闲",
  status_QUEUED: "排队中",
  status_RUNNING: "执行中",
  status_WAITING: "等待确认",
  status_COMPLETED: "已完成",
  status_FAILED: "失败",
  status_CANCELLED: "已停止",
  kind_sideline: "旁路",
  kind_subagent: "子代理",
  kind_scheduled: "定时",
  kind_feishu: "飞书",
  kind_dingtalk: "钉钉",
  approval: "需要你的确认",
  approve: "允许",
  deny: "拒绝",
  alreadyAnswered: "已由他人处理",
  tokensIn: "输入",
  tokensCached: "缓存",
  tokensOut: "输出",
  usageSession: "本会话累计",
  usageRun: "本次执行",
  connecting: "正在连接…",
  reconnecting: "连接已断开，{seconds} 秒后重试",
  reconnectNow: "立即重连",
  forbidden: "没有访问权限。",
  outdated: "页面版本过旧，请刷新。",
  reload: "刷新页面",
  sessionMissing: "会话不存在，或你没有权限查看。",
  error_disconnected: "连接已断开",
  error_outbox_full: "待发送的消息太多",
  error_queue_full: "队列已满",
  error_busy: "会话正在执行",
  error_network: "网络不可用",
  unknownError: "出了点问题：{reason}",
};

const ENGLISH = {
  appName: "Headway",
  newSession: "New session",
  sessions: "Sessions",
  searchSessions: "Search sessions",
  noSessions: "No sessions yet",
  noMatch: "No matching sessions",
  openMenu: "Open the session list",
  closeMenu: "Close the session list",
  rename: "Rename",
  remove: "Delete",
  cancel: "Cancel",
  confirmDelete: "Delete this session?",
  confirmDeleteText: "The messages of “{title}” go with it and cannot be brought back.",
  language: "中文",
  logout: "Sign out",
  theme: "Appearance",
  themeAuto: "System",
  themeLight: "Light",
  themeDark: "Dark",
  loginTitle: "Sign in to Headway",
  loginText: "Paste an access token. The login link printed at the server's start has it after #token=.",
  loginToken: "Access token",
  loginSubmit: "Sign in",
  loginWrong: "That token is not right.",
  loginFailed: "Cannot sign in now: {reason}",
  welcome: "What can I do for you?",
  welcomeText: "Your first message starts a new session.",
  messages: "Conversation",
  composer: "Message",
  placeholder: "Write a message…",
  placeholderBusy: "Keep writing; messages will queue…",
  hintIdle: "Enter to send · Shift+Enter for a new line",
  hintBusy: "Enter to queue · {modifier}+Enter to steer",
  send: "Send",
  enqueue: "Send to the queue",
  steer: "Steer",
  steerTitle: "Join the run in progress at its next round",
  stop: "Stop",
  stopping: "Stopping…",
  attach: "Add pictures or files",
  dropHere: "Drop to upload",
  uploading: "Uploading…",
  uploadFailed: "{name} was not uploaded: {reason}",
  tooLarge: "{name} is larger than the limit of {limit}",
  removeFile: "Remove {name}",
  editing: "Editing a message; sending starts again from there",
  edit: "Edit and resend",
  copy: "Copy",
  copied: "Copied",
  regenerate: "Answer again",
  retry: "Retry",
  sending: "Sending…",
  waitingForConnection: "Will be sent once connected…",
  steered: "Joins at the next round",
  notSent: "Not sent: {reason}",
  discard: "Discard",
  queued: "Queued",
  queuedAt: "Number {position} in the queue",
  paused: "The queue is paused",
  resume: "Go on",
  removeQueued: "Remove from the queue",
  thinking: "Thinking…",
  thought: "Thoughts",
  round: "Round {round}",
  running: "Running",
  jumpToLatest: "Jump to latest",
  loadOlder: "Load older messages",
  loading: "Loading…",
  compacted: "The context was compacted",
  compacting: "Compacting the context…",
  compactionFailed: "The context could not be compacted",
  stopped: "Stopped",
  undelivered: "The result could not be delivered to {surface}: {reason}",
  failed: "The run failed",
  runId: "Run",
  arguments: "Arguments",
  result: "Result",
  noResult: "No result",
  emptyResult: "(empty)",
  showAll: "Show all ({size})",
  showLess: "Show less",
  truncated: "The result was cut",
  fullResult: "Open the whole result",
  exitCode: "exit code {code}",
  phase_calling: "preparing",
  phase_running: "running",
  phase_done: "done",
  phase_failed: "error",
  phase_stopped: "not finished",
  status_IDLE: "Idle",
  status_QUEUED: "Queued",
  status_RUNNING: "Running",
  status_WAITING: "Waiting for you",
  status_COMPLETED: "Completed",
  status_FAILED: "Failed",
  status_CANCELLED: "Stopped",
  kind_sideline: "sideline",
  kind_subagent: "subagent",
  kind_scheduled: "scheduled",
  kind_feishu: "Feishu",
  kind_dingtalk: "DingTalk",
  approval: "Your approval is needed",
  approve: "Approve",
  deny: "Deny",
  alreadyAnswered: "Somebody else has answered",
  tokensIn: "in",
  tokensCached: "cached",
  tokensOut: "out",
  usageSession: "This session",
  usageRun: "This run",
  connecting: "Connecting…",
  reconnecting: "Connection lost; next try in {seconds} s",
  reconnectNow: "Reconnect now",
  forbidden: "You may not open this.",
  outdated: "This page is out of date; please reload it.",
  reload: "Reload",
  sessionMissing: "There is no such session, or you may not see it.",
  error_disconnected: "the connection is lost",
  error_outbox_full: "too many messages are waiting to be sent",
  error_queue_full: "the queue is full",
  error_busy: "the session is running",
  error_network: "the network is not available",
  unknownError: "Something went wrong: {reason}",
};

export const TEXTS = { "zh-CN": CHINESE, en: ENGLISH };

let texts = CHINESE;
let current = "zh-CN";

export function setLocale(locale) {
  current = locale in TEXTS ? locale : "zh-CN";
  texts = TEXTS[current];
}

export const locale = () => current;

/** @returns {"zh-CN" | "en"} */
export function localeFor(languages) {
  return languages.some((language) => /^zh\b/i.test(language)) || languages.length === 0 ? "zh-CN" : "en";
}

export function t(key, values = {}) {
  return texts[key].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** The words for a value of an open set, such as a session's kind; the value itself if unknown. */
export function named(family, value) {
  return texts[`${family}_${value}`] ?? value;
}

/** Why something did not work: our words where we have them, else what the server said. */
export function reasonOf(error) {
  return texts[`error_${error.code}`] ?? error.message;
}

export function formatDuration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return formatElapsed(ms);
}

/** Of something that still goes on: no fraction that would flicker. */
export function formatElapsed(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

export function formatBytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${Math.round(bytes / 1024)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** Today's time, else the day. */
export function formatWhen(value) {
  const when = new Date(value);
  if (Number.isNaN(when.getTime())) return "";
  const isToday = when.toDateString() === new Date().toDateString();
  const form = isToday ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { month: "numeric", day: "numeric" };
  return when.toLocaleString(current, form);
}
