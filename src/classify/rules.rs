//! The built-in rules, as data: what says what an error is, in the order in which it decides.
//!
//! The first rule of the table that holds decides; the order is the precedence (CL8):
//!
//! | tier | evidence |
//! | --- | --- |
//! | 1 | exceptions to what comes below: a size that is no context, a throttle that counts tokens, … |
//! | 2 | context overflow, in words or in a code (CL3) |
//! | 3 | that repeating cannot help: content filter, billing, auth, invalid request, local faults |
//! | 4 | account limits (CL5) |
//! | 5 | words for something transient: overloaded, rate limit, network, server error |
//! | 6 | general codes, which servers also send along with something more telling |
//! | 7 | the status (CL6), a page's title |
//! | 8 | words that alone say little |
//!
//! Phrases are facts of the wire and are written as `pattern.rs` says. Each rule carries texts that it
//! decides and texts that it must not decide.

use super::ErrorClass::{self, *};
use super::explain::OverflowUnit;
use super::signals::Origin;

/// One rule.
pub(super) struct Rule {
    pub(super) id: &'static str,
    pub(super) class: ErrorClass,
    /// One of these patterns must be found; empty: the status alone decides.
    pub(super) any: &'static [&'static str],
    /// One of these must be found as well, anywhere.
    pub(super) with: &'static [&'static str],
    /// None of these may be found, anywhere but on a page.
    pub(super) unless: &'static [&'static str],
    /// Where `any` may stand.
    pub(super) origins: &'static [Origin],
    /// What the status must be.
    pub(super) status: Statuses,
    /// The server must have named a delay of at most so many milliseconds.
    pub(super) max_hint_ms: Option<u64>,
    /// What it is of which there is too much.
    pub(super) about: Option<OverflowUnit>,
    /// Texts that it decides.
    #[cfg_attr(
        not(feature = "rules"),
        allow(dead_code, reason = "read by tests and by rule files")
    )]
    pub(super) matches: &'static [&'static str],
    /// Texts that it must not decide.
    #[cfg_attr(not(test), allow(dead_code, reason = "read by tests"))]
    pub(super) misses: &'static [&'static str],
}

/// A condition on the status.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statuses {
    /// Whatever it is, or none.
    Any,
    /// One of these.
    Only(&'static [u16]),
    /// In this range.
    Range(u16, u16),
    /// None, or in this range.
    NoneOr(u16, u16),
    /// None, or not one that says that the request itself was refused.
    NotRefused,
}

impl Statuses {
    pub(super) fn holds(self, status: Option<u16>) -> bool {
        match (self, status) {
            (Self::Any, _) | (Self::NotRefused | Self::NoneOr(..), None) => true,
            (Self::Only(_) | Self::Range(..), None) => false,
            (Self::Only(list), Some(status)) => list.contains(&status),
            (Self::Range(first, last) | Self::NoneOr(first, last), Some(status)) => {
                (first..=last).contains(&status)
            }
            (Self::NotRefused, Some(status)) => {
                !(400..500).contains(&status) || matches!(status, 408 | 409 | 425 | 429 | 499)
            }
        }
    }
}

/// Everywhere but in the depths of a page.
pub(super) const WORDS: &[Origin] = &[Origin::Prose, Origin::Message, Origin::Code, Origin::Title];
const CODES: &[Origin] = &[Origin::Code];
const PAGES: &[Origin] = &[Origin::Title, Origin::Page];
const EVERYWHERE: &[Origin] = &[
    Origin::Prose,
    Origin::Message,
    Origin::Code,
    Origin::Title,
    Origin::Page,
];

const RULE: Rule = Rule {
    id: "",
    class: Unknown,
    any: &[],
    with: &[],
    unless: &[],
    origins: WORDS,
    status: Statuses::Any,
    max_hint_ms: None,
    about: None,
    matches: &[],
    misses: &[],
};

/// Words that say that tokens were counted over time and not in one request.
const PACE: &[&str] = &[
    "per (min|minute|second|sec|hour|day)",
    "(tpm|rpm|tpd|rpd)",
    "rate limit*",
    "(this|last|past|each|every) (minute|second|hour|day|week|month)",
    "(concurren*|in flight)",
    "(please wait|slow down|throttl*)",
];

/// The table.
pub(super) const RULES: &[Rule] = &[
    // ---- 1: exceptions
    Rule {
        id: "user-aborted",
        class: Aborted,
        any: &[
            "user (aborted|cancelled|canceled|interrupted)",
            "(aborted|cancelled|canceled|interrupted) by (the |)user",
        ],
        matches: &["AbortError: the run was cancelled by the user"],
        misses: &["429 Too Many Requests for the user"],
        ..RULE
    },
    Rule {
        id: "output-cap",
        class: InvalidRequest,
        about: Some(OverflowUnit::OutputCap),
        any: &[
            "maximum allowed number of output tokens",
            "supports at most # … (completion|output) tokens",
            "range of max tokens (is|should be)",
            "max (completion |output |)tokens is too large",
            "maximum tokens you requested exceed*",
            "(max tokens|max output tokens|max completion tokens|max new tokens|maxoutputtokens|@) … (must be|should be|cannot be|can't be|must not be) (less|greater|at most|at least|between|in the range|smaller|<=|<|>|positive)",
            "(exceed*|greater than|larger than|above) … (maximum|max) (output|completion) (tokens|token|length)",
            "invalid max (output |completion |)tokens",
            "output token maximum",
            "(ausgabelänge|longitud de salida|longueur de sortie|tamanho da saída|最大出力|出力トークン|输出长度|输出上限)",
            "^max output tokens$",
            "budget tokens",
        ],
        unless: &[
            "context (length|window|size|limit)",
            "tokens + @ must be",
            "tokens + max",
        ],
        matches: &[
            "max_tokens: 50000 > 32000, which is the maximum allowed number of output tokens for acme-2",
            "Range of max_tokens should be [1, 8192]",
        ],
        misses: &["This model's maximum context length is 8192 tokens, 9000 were given"],
        ..RULE
    },
    // What no provider can help with.
    Rule {
        id: "certificate",
        class: OtherFatal,
        any: &[
            "self signed certificate",
            "certificate … (expired|verify failed|not trusted|invalid|unknown|mismatch|not valid|required)",
            "(certificate verify failed|unable to verify the first certificate|unable to get local issuer certificate|unable to get issuer cert|unknown ca|cert authority invalid|unknown issuer|altname invalid|cert has expired)",
            "x509",
        ],
        matches: &["request failed: self signed certificate in certificate chain"],
        misses: &["401 the client id has expired"],
        ..RULE
    },
    Rule {
        id: "location",
        class: OtherFatal,
        any: &[
            "location is not supported",
            "(country|region|territory|location|geographic) … (not supported|not available|not allowed|restricted|unsupported|blocked)",
            "unsupported country",
            "not available in your (country|region|location)",
            "(地区|区域|国家) … (不可用|不支持|无法使用|受限)",
            "(地區|區域|國家) … (不支援|無法使用|受限|不可用)",
        ],
        matches: &["400 User location is not supported for the API use."],
        misses: &["404 model acme-2 is not supported"],
        ..RULE
    },
    Rule {
        id: "banned",
        class: OtherFatal,
        any: &[
            "(organization|account|user|workspace|project|team|key) … (has been|is|was) (disabled|suspended|banned|terminated|deactivated|blocked|restricted)",
            "(disabled|suspended|banned) in this account",
            "violation of … terms",
            "account deactivated",
            "deactivated workspace",
            "account (suspended|banned|disabled|blocked)",
        ],
        unless: &[
            "(spending|spend|payment|invoice|invoices|billing|balance|credits|unpaid|overdue)",
        ],
        matches: &["403 This organization has been disabled."],
        misses: &["Account acme has been suspended: monthly spending limit reached"],
        ..RULE
    },
    Rule {
        id: "machine",
        class: OtherFatal,
        any: &[
            "enospc",
            "no space left on device",
            "disk quota exceeded",
            "out of memory",
            "more system memory",
            "(cannot|unable to|failed to) (free|allocate) … memory",
            "enomem",
            "emfile",
            "insufficient memory",
            "not have enough … (memory|vram|ram)",
            "(not enough|too little) (available |gpu |system |)(memory|vram|ram)",
        ],
        matches: &[
            "write failed: ENOSPC: no space left on device",
            "model requires more system memory (48 GiB) than is available (16 GiB)",
        ],
        misses: &["quota exceeded for this account"],
        ..RULE
    },
    Rule {
        id: "not-a-model-call",
        class: OtherFatal,
        any: &[
            "mcp error",
            "structured content",
            "file content … exceeds maximum",
            "no (suitable |available )(model|channel|channels) … (found|for)",
            "no available (channel|channels|providers|provider|accounts)",
            "(无可用|没有可用|暂无可用)",
            "free tier can only be used",
        ],
        unless: &["(余额|充值|欠费)"],
        matches: &[
            "MCP error -32600: the tool gave no structured content",
            "503 无可用渠道",
        ],
        misses: &["404 model acme-2 not found"],
        ..RULE
    },
    Rule {
        id: "media-size",
        class: InvalidRequest,
        about: Some(OverflowUnit::Media),
        any: &[
            "(image|images|image dimensions|image size|pdf|video|audio|attachment|file|document) … (exceed*|too large|too big|too many|too small)",
            "(limit of #|at most #|more than #|maximum of #|up to #) … (images|image|files|documents|pdf pages|attachments|tools|cache control blocks|blocks|functions)",
            "(画像|ファイル|添付|图片|文件|附件|이미지|파일) … (大きすぎ|过大|太大|超过|너무 큽)",
            "too many (images|files|documents|attachments|tools|functions|media)",
            "limit of # … (image|images|items|tools|files|pages)",
            "maximum of # blocks",
        ],
        unless: &[
            "context (length|window|size)",
            "(total|input|prompt|message) tokens",
            "usage credits are required",
        ],
        matches: &[
            "400 image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes",
            "Too many images in request: 120",
        ],
        misses: &["prompt is too long: 300000 tokens > 200000 maximum"],
        ..RULE
    },
    Rule {
        id: "request-bytes",
        class: InvalidRequest,
        about: Some(OverflowUnit::Bytes),
        any: &[
            "(maximum allowed|maximum|allowed) number of bytes",
            "(request|payload|body|entity|content|size|message) … (exceed*|too large|too big|over|larger than) … (mb|mib|kb|bytes|maximum size|size limit|max size of)",
            "(payload|entity|content|request entity|request body|body|message) (is |)too large",
            "(length|size) limit exceeded",
            "too large … (max #|maximum #) … (mb|mib|kb|bytes)",
            "(string|array|string value|field value) (length |)… (too long|exceed*|above max length)",
            "above (max|maximum) length",
            "request too large$",
            "request too large … max #",
            "request exceeds the maximum size",
            "failed to buffer the request body",
        ],
        unless: &[
            "token*",
            "context (length|window|size|limit)",
            "prompt is too long",
        ],
        matches: &[
            "413 Request exceeds the maximum allowed number of bytes.",
            "Request too large (max 20MB)",
        ],
        misses: &[
            "Request too large for acme-2 on tokens per min (TPM): Limit 30000, Requested 61337",
        ],
        ..RULE
    },
    Rule {
        id: "extra-usage",
        class: Billing,
        any: &[
            "extra usage is required",
            "(out of|from your|enable|need|needs|no|add) extra usage",
            "extra usage … (disabled|not enabled|limit)",
            "overages enabled",
            "premium request limit",
            "usage credits are required",
            "requires usage credits",
        ],
        matches: &["429 Extra usage is required for long context requests."],
        misses: &["usage limit reached, resets at 5pm"],
        ..RULE
    },
    Rule {
        id: "key-token-limit",
        class: Billing,
        any: &["tokens limit exceeded … (monthly limit|higher monthly|settings)"],
        matches: &[
            "Prompt tokens limit exceeded: 230799 > 91442. Create a key with a higher monthly limit in the settings",
        ],
        misses: &["Input token limit exceeded: 250000 tokens > 200000 maximum"],
        ..RULE
    },
    Rule {
        id: "paced-tokens",
        class: RateLimit,
        any: &[
            "too many tokens … (please wait|per minute|per second|last minute|slow down|processed)",
            "tokens per (minute|min|second) limit exceeded",
            "limit of # tokens per (minute|min|second)",
            "rate limit … tokens per (min|minute|second)",
            "tokens per (min|minute|second) … used #",
            "exceeded … per minute",
            "maximum number of tokens allowed within a given",
            "error code token limit",
        ],
        unless: &["request too large", "per day", "must be reduced"],
        matches: &[
            "ThrottlingException: Too many tokens, please wait before trying again.",
            "429 rate limit of 40,000 input tokens per minute: tokens per minute used 39000",
        ],
        misses: &["Too many tokens per day, please wait"],
        ..RULE
    },
    // ---- 2: overflow
    Rule {
        id: "context-overflow",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &[
            "context (length|window|size|limit) (is |was |has been |has |)(exceeded|exceeds|exceed|overflow*|too small|reached|full)",
            "no (room|space) (left |)in the context",
            "(context|prompt|conversation) (still |already |) exceed*",
            "input length of … is set to",
            "kv slot",
            "kv cache (is |)(full|exhausted|too small)",
            "(big|large|larger|bigger|exceed*) … (kv size|kv cache)",
            "calculated available context size",
            "max tokens of # exceeded",
            "(larger|longer|greater) than the (model's |model |maximum |)(input length|length limit|token limit|input limit|input size)",
            "^input length$",
            "context window exceed*",
            "(maximum|max) context (length|window|size|limit|tokens) … (exceeded|of|reached|is #|is @|is only|is limited|is set)",
            "(exceed*|larger than|longer than|greater than|bigger than|beyond|outside|more than|over) … (context (length|window|size|limit)|maximum context|max context|n ctx)",
            "exceed* … (maximum input length|maximum allowed input length|maximum sequence length|max sequence length|maximum prompt length|max prompt length|model limit|model's limit|model token limit|max token count|maximum number of input tokens|maximum input tokens|max input tokens|input token limit|maximum number of tokens allowed)",
            "(longer|greater|larger|more|bigger) than (the |)(specified |configured |allowed |)(maximum|max) (model|sequence|seq|input|prompt|decoder|total|context|token) (len|length|size|tokens|count)",
            "exceed* … (maximum|max) (model|sequence|seq|input|prompt|decoder|total|message|context) (len|length|size|tokens)",
            "(longer|greater|larger|more) than (the |)max seq len",
            "(less than|no more than|at most|fewer than|smaller than|<=) (the |)(max seq len|max model len|max input length|n ctx)",
            "n keep … n ctx",
            "context limit is #",
            "(reached|hit|hits|ran out of|out of|no more|used up|used all|exhausted|run out of) … (context window|context length|context limit|context space|context size)",
            "too many input tokens",
            "(input|prompt|request) token count (is|of) #",
            "(max|maximum) (input|prompt) tokens: #",
            "reduce the (input token count|number of input tokens|prompt size|context)",
            "context (window|length|size) (is|of) (only |)#",
            "configured context size is #",
            "loaded with context length of",
            "maximum prompt length is #",
            "maximum context length is (#|@|only|limited|set|less|smaller)",
            "too large for model with #",
            "too large for model … maximum context",
            "(filled|fills|fill|exhausted|exhausts) the context (window|length)",
            "context (too long|overflow*|is full)",
            "context the overflows",
            "exceed context size",
            "n ctx … (exceed*|too (long|large))",
            "leaves # output tokens",
            "(run|ran) out of context",
            "(not|doesn't|won't|can't) fit … context",
            "too (large|long|big) for … context",
            "requested # tokens … context",
            "too long for (max|maximum) (seq|sequence|model|input) len*",
        ],
        unless: &["minimum is"],
        matches: &[
            "400 context_length_exceeded",
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
            "decode failed: NoKvSlot",
        ],
        misses: &[
            "This model has a 128k token capacity",
            "500 could not start: the maximum context length is not known",
        ],
        ..RULE
    },
    Rule {
        id: "prompt-too-long",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &[
            "(prompt|input|conversation|context|messages|message|chat history|history|query|sequence|transcript|text|request|chat) (is |are |was |has become |)too (long|big)",
            "(prompt|input|conversation|context|messages|chat history|query) (is |are |was |)too large",
            "input length should be",
            "(prompt|input) … too (long|large) … (context|n ctx|tokens)",
            "(prompt|input|message|conversation) exceeds (max|maximum) length",
            "(chat history|conversation|history) … (exceed*|too long)",
            "(input|prompt|content|sequence|context|conversation|input content|token|tokens|decoder prompt) length … (exceed*|greater than|larger than|longer than|too (long|large))",
            "length # … exceeds dimension",
            "too many total text bytes",
            "(input|prompt|requested|total) token* … (exceed*|greater than|longer than|larger than|is too large|too long)",
            "token count … exceed*",
            "(prompt|input) (length|size) … exceed*",
            "prompt tokens … exceed*",
            "(message|prompt|input|request|conversation|content) exceeds (the |)(model's |)(token limit|maximum number of tokens|max tokens|maximum tokens)",
            "requested # tokens … (messages|prompt|completion)",
            "(input|prompt) tokens … must be (no more than|less than|at most|fewer than|smaller than)",
            "must have (less|fewer) than # tokens",
            "(prompt|input|request|message) (is |was |)longer than (allowed|permitted|supported|the (limit|maximum|max))",
            "(prompt|input|message|conversation) exceed* (the |)(max|maximum) length",
            "tokens … accepts (at most|only|up to|no more than) #",
            "can only (handle|process|take|accept) # tokens",
            "tokens in (the |your |)(request|prompt|input|messages) … (limit|maximum|allowed)",
            "(token count|input tokens|prompt tokens|total tokens) … (above|over|beyond|past) the (limit|maximum|max)",
            "(message|text|prompt|input) you (submitted|sent|entered|provided) (was|is) too long",
            "(message|prompt|input|text) length exceeds limit",
            "(token|tokens) … (超过|超出) … (上限|限制|最大|限额)",
            "resulted in # tokens",
        ],
        unless: PACE,
        matches: &[
            "prompt is too long: 213462 tokens > 200000 maximum",
            "message length exceeds limit",
        ],
        misses: &["429 input tokens exceed the rate limit of 30000 per minute"],
        ..RULE
    },
    Rule {
        id: "reduce-length",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &[
            "(reduce|decrease|shorten|lower) the (length|size) of (the |your |)(messages|prompt|input|either|conversation|context|request)",
            "reduce your prompt",
            "(shorten|trim) your (last |)message",
            "(shorten|trim) (your|the) (prompt|input|conversation|context|messages|message)",
            "provide a shorter (prompt|input)",
        ],
        unless: PACE,
        matches: &["Please reduce the length of the messages or completion."],
        misses: &["Please reduce the prompt length, this exceeds your rate limit per minute"],
        ..RULE
    },
    Rule {
        id: "token-limit",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &[
            "(token limit|tokens limit|max tokens limit) (is |was |)(exceeded|reached)",
            "exceed* … (token limit|tokens limit|limit of #)",
            "max prompt tokens exceeded",
            "max tokens supported is",
            "(reached|hit) (the |its |your |)(maximum |max |)token limit",
            "^token limit$",
            "too many words",
            "tokens, max",
            "tokens, limit is #",
            "tokens > # maximum",
            "too many tokens",
            "maximum number of tokens … exceed*",
            "tokens + @ must be",
            "tokens + max new tokens must be",
            "number of tokens to keep … greater",
        ],
        unless: &[
            "per (min|minute|second|sec|hour|day|week|month)",
            "(tpm|rpm|tpd|rpd)",
            "rate limit*",
            "(this|last|past|each|every) (minute|second|hour|day|week|month)",
            "(concurren*|in flight)",
            "limit of # (requests|calls|messages|connections)",
            "(please wait|slow down|throttl*)",
            "(daily|monthly|weekly|minute limit|day limit)",
            "copilot token usage",
            "(offset and limit|file content)",
            "(output|completion) tokens",
        ],
        matches: &[
            "the text has 250000 tokens > 200000 maximum",
            "too many tokens in the request",
        ],
        misses: &[
            "This request exceeds the limit of 30000 tokens per minute",
            "429 Token limit exceeded for this minute",
            "429 The number of parallel requests exceeds the limit of 5 requests",
        ],
        ..RULE
    },
    Rule {
        id: "request-above-token-budget",
        class: Overflow,
        about: Some(OverflowUnit::TokensPerMinute),
        any: &[
            "request too large for … (tokens per min*|tpm|limit #)",
            "input or output tokens must be reduced",
            "reduce your message size",
            "(body|request|payload|prompt) too large for … (tokens|token)",
        ],
        matches: &[
            "429 Request too large for acme-2 on tokens per min (TPM): Limit 30000, Requested 61337",
        ],
        misses: &[
            "429 Rate limit reached for acme-2 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000",
        ],
        ..RULE
    },
    Rule {
        id: "overflow-no-body",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &["no body"],
        status: Statuses::Only(&[400, 413]),
        matches: &["413 status code (no body)"],
        misses: &["429 status code (no body)"],
        ..RULE
    },
    Rule {
        id: "overflow-zai",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &["^1261$"],
        origins: CODES,
        matches: &["{\"error\":{\"code\":\"1261\",\"message\":\"Prompt\"}}"],
        misses: &["{\"error\":{\"code\":\"1210\",\"message\":\"1261\"}}"],
        ..RULE
    },
    Rule {
        id: "overflow-cjk",
        class: Overflow,
        about: Some(OverflowUnit::Tokens),
        any: &[
            "超长",
            "(上下文|輸入|提示詞|對話|文字|訊息|內容|請求) … (過長|太長|超長|超出|超過)",
            "(超出|超過) … (上下文|最大長度|最大輸入|token 限制|長度限制)",
            "(上下文|输入|提示词|对话|文本|消息|内容|prompt|请求内容) … (过长|太长|超长|超出|超过)",
            "(超出|超过) … (上下文|最大长度|最大输入|最大 token|token 限制|最大tokens|长度限制)",
            "(对话长度|上下文长度|输入长度|提示长度) … (上限|超)",
            "(kontextfenster|kontextlänge|fenêtre de contexte|longueur de contexte|longueur maximale de contexte|ventana de contexto|longitud máxima de contexto|longitud de contexto|janela de contexto|tamanho máximo de contexto|comprimento máximo de contexto|limite de contexto|límite de contexto|контекстного окна|контекстное окно|длина контекста|длину контекста)",
            "(コンテキスト長|コンテキストウィンドウ|コンテキスト制限|文脈長)",
            "コンテキスト … (上限|超え|超過)",
            "(longueur|longitud|comprimento|tamaño|tamanho|taille|länge) … (contexte|contexto|kontext|kontexts|kontextes)",
            "(컨텍스트 길이|컨텍스트 창|컨텍스트 윈도우|컨텍스트 한도)",
            "(prompt|entrada|mensaje|mensagem|eingabe|anfrage|nachricht|solicitud|solicitação|requête|invite|conversación|conversa|запрос) … (demasiado largo|demasiado larga|longo demais|longa demais|muito longo|muito longa|trop long|trop longue|zu lang|слишком длинный)",
            "(入力|プロンプト) … (長すぎ|超過)",
            "(입력|프롬프트) … (초과|너무 깁|너무 길)",
            "单次请求过大",
        ],
        matches: &["400 输入过长：上下文超出模型上限", "入力が長すぎます"],
        misses: &["请求过于频繁"],
        ..RULE
    },
    // ---- 3: content filter
    Rule {
        id: "content-filter",
        class: ContentFilter,
        any: &[
            "content filter*",
            "content (management |moderation |safety |usage |)polic*",
            "content moderation",
            "responsible ai polic*",
            "requires moderation",
            "safety measures flagged",
            "flagged this (message|request|prompt|conversation)",
            "censorship",
            "(content|output|outputted|response) … is blocked",
            "matched public code",
            "content can't be shown",
            "trusted access",
            "flagged (as|by|for|input)",
            "(prompt|input|request|content|message|response|output|completion|answer|image) (was|got|were|has been|is being) (flagged|blocked|filtered|moderated)",
            "nsfw",
            "(adult|sexual|violent|hateful|obscene|pornographic|graphic|disallowed|objectionable) content",
            "(bio|cbrn|chemical|biological|nuclear|weapons|csam) policy",
            "(moderation|safety) (system|filter|layer|check|team) … (refused|rejected|blocked|flagged|denied)",
            "(rejected|refused|blocked|denied|declined|stopped) by (the |our |)(content |safety |)(moderation|moderator|safety|filter|filters|guardrail|guardrails)",
            "(refused|declined) … safety",
            "(policy|safety|moderation) violation",
            "(prompt|content|input|message|output|image|text) violates",
            "unsafe (prompt|input|output|request)",
            "(usage|acceptable use|safety|moderation|community) (polic*|guidelines)",
            "violat* … (polic*|guidelines|moderation)",
            "(blocked|block reason) … (safety|prohibited content|recitation|blocklist|spii|content)",
            "(blocked reason|block reason|finish reason|finishreason) (safety|recitation|prohibited content|blocklist|spii|image safety|language|other)",
            "blocked reason",
            "block reason=",
            "prohibited content",
            "reason: (recitation|safety|prohibited content|content filter)",
            "safety (settings|system|filter*|reasons|ratings|check)",
            "candidate was blocked",
            "data inspection failed",
            "inappropriate content",
            "content exists risk",
            "(sensitive|harmful|unsafe|explicit|offensive) (content|words|information|material|data)",
            "guardrail intervened",
            "blocked by … guardrail",
            "cyber policy",
            "finish reason … (blacklist|refusal|content filter|sensitive)",
            "(new sensitive|input new sensitive|output new sensitive)",
            "(敏感|违规|不当|不适|违法|有害) … (内容|信息|词)",
            "(内容|信息) … (敏感|违规|安全|审核|不合规|不适)",
            "(敏感|违规)内容",
            "内容(安全|审核|违规|敏感)",
            "(敏感|違規|不當|不適|違法|有害) … (內容|資訊|詞)",
            "(內容|訊息) … (敏感|違規|安全|審核)",
            "(ポリシー|ガイドライン) … 違反",
            "不適切な",
            "(부적절한|콘텐츠 정책|안전 정책)",
            "(contenido|conteúdo|contenu) … (bloqueado|filtrado|inapropiado|inadecuado|inadequado|impróprio|bloqué|filtré|inapproprié)",
            "(inhalt|inhalte) … (blockiert|gefiltert|abgelehnt|unzulässig)",
            "(sicherheitsfilter|inhaltsfilter|inhaltsrichtlinien|inhaltsrichtlinie)",
            "(контент|содержимое|содержание) … (заблокирован|заблокировано|отфильтрован|недопустим|недопустимо|нарушает)",
        ],
        unless: &["data policy", "restrictions and data", "extra inputs"],
        matches: &[
            "Output blocked by content filtering policy",
            "400 data_inspection_failed: input may contain inappropriate content",
            "(filtered) the answer got filtered",
            "{\"error\":{\"code\":\"bio_policy\",\"message\":\"no\"}}",
        ],
        misses: &["404 No endpoints found matching your data policy"],
        ..RULE
    },
    Rule {
        id: "content-filter-code",
        class: ContentFilter,
        any: &[
            "^(recitation|blocklist|spii|image safety|refusal|moderation blocked|content filtered)$",
        ],
        origins: CODES,
        matches: &["500 {\"error\":{\"code\":\"BLOCKLIST\",\"message\":\"-\"}}"],
        misses: &["500 the blocklist could not be loaded"],
        ..RULE
    },
    Rule {
        id: "content-filter-zai",
        class: ContentFilter,
        any: &["^1301$"],
        origins: CODES,
        matches: &["{\"error\":{\"code\":\"1301\",\"message\":\"…\"}}"],
        misses: &["port 1301 is in use"],
        ..RULE
    },
    // ---- 3: billing
    Rule {
        id: "window-quota",
        class: UsageLimit,
        any: &[
            "free models per day",
            "free quota used … resets",
            "(usage|session|weekly|daily|hourly|5 hour|hour) limit … (reset*|try again at)",
            "(reached|hit) your usage limit",
            "you have no quota",
        ],
        matches: &[
            "You've hit your usage limit. Try again in 4 days.",
            "5-hour limit reached, resets 2am",
        ],
        misses: &["429 Server is temporarily limiting requests (not your usage limit)"],
        ..RULE
    },
    Rule {
        id: "zero-quota",
        class: Billing,
        any: &["limit: 0"],
        with: &["quota exceeded"],
        matches: &[
            "429 Quota exceeded for metric acme/free_requests, limit: 0, model: acme-2. Please retry in 2s.",
        ],
        misses: &[
            "429 Quota exceeded for metric acme/free_requests, limit: 20. Please retry in 2s.",
        ],
        ..RULE
    },
    Rule {
        id: "quota-per-day",
        class: UsageLimit,
        any: &[
            "(requests|tokens|queries|input tokens|calls|images) per (day|week|month)",
            "per day per",
        ],
        matches: &["429 Quota exceeded: 1000 requests per day"],
        misses: &["429 Quota exceeded: 10 requests per minute"],
        ..RULE
    },
    Rule {
        id: "quota-refills-soon",
        class: RateLimit,
        any: &[
            "quota exceeded",
            "current quota",
            "exhausted your capacity",
            "quota will reset",
            "limit … (reset|resets)",
        ],
        with: &["(please retry in|rate limit exceeded|requests per minute|rate limit)"],
        unless: &["(weekly|daily|monthly|per day|per week|per month)"],
        max_hint_ms: Some(60_000),
        matches: &["429 You exceeded your current quota. Please retry in 36.5s."],
        misses: &["429 You exceeded your current quota. Please retry in 7h."],
        ..RULE
    },
    Rule {
        id: "billing",
        class: Billing,
        any: &[
            "insufficient (balance|credit|credits|funds|account balance|user quota|subscription)",
            "(balance|credit balance|credits|wallet|funds) (is |are |too |)(too low|insufficient|exhausted|not enough|depleted|empty|low|negative)",
            "(not enough|no|out of|run out of|ran out of|lack|lacks|without|requires more|needs more|any) (available |remaining |)(credit|credits|balance|funds)",
            "requires … credits",
            "exceed* … (included credits|available credits|credit limit|your credits)",
            "used all … credits",
            "(add|purchase|buy|top up) (more |)(credit|credits|funds)",
            "(credits|credit) … (exhausted|depleted|required|insufficient)",
            "exceeded your current quota, please check your plan and billing",
            "billing (hard limit|details|limit|not active|issue|account|error|required|cycle)",
            "(plans|plan) (&|and) billing",
            "can only afford",
            "key limit exceeded",
            "(run out of|ran out of|out of) usage",
            "used all your (remaining |)(tokens|credits|balance|usage)",
            "used all your # tokens",
            "(free tier|free quota|free trial|trial credit|trial credits|free allowance|trial) … (exhausted|expired|ended|used up|is over|has run out)",
            "free tier only",
            "payment (required|method|failed|overdue|past due)",
            "card (was |has been |)declined",
            "billing (is |has |)(not been enabled|not enabled|disabled|not set up|not configured|inactive)",
            "(enable|activate|set up) (your |)billing",
            "(free|trial|promotional) credits … (used|gone|expired|exhausted)",
            "negative balance",
            "non payment",
            "plan (does not|doesn't|did not) (include|cover|allow)",
            "(недостаточно|закончились) (средств|средства|кредитов|кредиты|баланса)",
            "credit card",
            "(crédits|créditos|кредиты|кредитов|guthaben|saldo|solde) … (épuisés|insuffisants|agotados|insuficientes|esgotados|aufgebraucht|erschöpft|insuficiente|insuffisant|закончились|недостаточно)",
            "(past invoices|unpaid|overdue|arrearage|in arrears)",
            "account … in good standing",
            "(spend|spending|cost|usd|dollar|monthly budget) (limit|cap|quota)",
            "spending limit",
            "budget … (exceeded|exhausted|reached|full|insufficient)",
            "(exceed*|over) … budget",
            "budget (full|exceeded|exhausted)",
            "(top up|topup|recharge|prepaid balance)",
            "(no|without|valid|not have a|requires a|need a) (active |valid |paid |codingplan |coding plan |)(subscription|plan)",
            "not have … subscription",
            "subscription … (expired|inactive|canceled|cancelled|required|not active|insufficient)",
            "not subscribed to",
            "subscribe to",
            "(not available|not included|not supported|unavailable) … (current |subscription |)plan",
            "not (yet |)include access",
            "in your current plan",
            "required … plan",
            "(欠费|充值|余额不足|余额|额度不足|账户余额|订阅额度|套餐)",
            "(残高|잔액)",
            "(餘額|欠費|儲值|額度不足|加值)",
            "pre consume token quota failed",
            "quota failed … need",
            "(saldo insuficiente|solde insuffisant|guthaben)",
        ],
        unless: &[
            "per (minute|min|second)",
            "error code token limit",
            "weekly",
            "per hour",
            "limit resets",
            "resets at",
            "(fair use|公平使用)",
        ],
        matches: &[
            "402 Insufficient Balance",
            "Your credit balance is too low to access the API.",
        ],
        misses: &["429 balance your requests over time"],
        ..RULE
    },
    Rule {
        id: "billing-code",
        class: Billing,
        any: &[
            "^(insufficient quota|billing not active|insufficient balance error|insufficient funds|payment required|arrearage|1113|1309|1311)$",
            "personal team blocked",
        ],
        unless: &["error code token limit", "per (minute|min|second)"],
        matches: &["429 {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"no\"}}"],
        misses: &["429 {\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"no\"}}"],
        ..RULE
    },
    // ---- 3: auth
    Rule {
        id: "auth",
        class: Auth,
        any: &[
            "(invalid|incorrect|wrong|missing|no|bad|expired|revoked|malformed|unknown|disabled) (x |)(api key|api keys|apikey|api token|access token|auth token|bearer token|authentication token|authorization|authorization header|authentication|credentials|credential|secret key|openai api key|anthropic api key|token provided)",
            "(api key|apikey|api token|access token|auth token|credentials|credential|bearer token) … (invalid|not valid|incorrect|missing|expired|revoked|disabled|not found|required|not provided|could not be refreshed|does not exist|deactivated)",
            "api key does not have",
            "missing request extension",
            "(api key|apikey|api token) (is |)(not set|unset|not configured|empty|undefined)",
            "api key provided",
            "(key|token|credentials) (you |)(provided|supplied|sent|entered) (is|are|was|were) (not valid|invalid|incorrect|wrong)",
            "^(the |your |)token is (invalid|not valid)",
            "must be (logged in|signed in|authenticated|authorized)",
            "(key|token|account|user|client) is not (allowed|permitted|authorized) to",
            "invalid signature exception",
            "(provide|set|check|pass) (a valid |an |your |)(api key|openai api key|credentials)",
            "authentication (error|failed|fails|failure|required|is required|token|credentials)",
            "(unauthenticated|not authenticated|unauthorized client|unrecognized client|not authorized)",
            "permission (denied|error)",
            "permission … denied",
            "(not have|no|lacks|insufficient|without|missing) (the |sufficient |required |)(permission|permissions|scope|scopes|privileges)",
            "access denied",
            "access to … (denied|forbidden)",
            "don't have access to",
            "not allowed for this (account|organization|key|token)",
            "security token … (invalid|expired)",
            "(expired token|token expired|token has expired|token is expired|token has been revoked|token revoked|token invalidated|token was already used)",
            "refresh token … (used|expired|revoked|invalid|reused)",
            "(oauth|jwt|session) (token|authentication) … (expired|invalid|revoked|not supported|failed)",
            "(log|sign) (in|out and (log|sign) in|out and log in) again",
            "please (log in|login|sign in|run /login|reauthenticate|re authenticate)",
            "token refresh (failed|needed|required)",
            "(could not|cannot|unable to|failed to) refresh (the |your |)(access |oauth |)token",
            "verify your account",
            "(无效|失效|过期|错误|不正确)的 … (令牌|密钥|token|api key|key)",
            "(无效的令牌|无效的密钥|令牌无效|密钥无效|令牌已过期)",
            "(chave|clave|clé|schlüssel|ключ) … (inválida|invalida|invalide|ungültig|desativada|caducada|vencida|expirée|недействителен|неверный)",
            "(api キー|apiキー|アクセストークン|トークン) … (無効|期限切れ|正しくありません)",
            "(api 키|api키|토큰) … (유효하지|만료|잘못)",
            "failed to refresh token",
            "invalid (grant|client|token)",
            "auth unavailable",
            "no auth available",
            "no longer a member of the organization",
            "only authorized for use with",
            "signature we calculated does not match",
            "(身份验证|鉴权|认证|授权|token|令牌|密钥) … (失败|过期|无效|失效|错误|不正确)",
            "(无权|没有权限|未授权|权限不足)",
            "(無效|失效|過期|錯誤|不正確)的 … (權杖|令牌|金鑰|憑證|token|api key|key)",
            "(金鑰|權杖|令牌|憑證|驗證|認證|授權|api key|token) … (失敗|過期|無效|失效|錯誤)",
            "(無權|沒有權限|未授權|權限不足|未登入|尚未登入)",
            "(認証|인증) … (失敗|실패|エラー|오류)",
            "(clave|llave) … (inválida|incorrecta)",
        ],
        unless: &[
            "throttl*",
            "rate limit*",
            "too many requests",
            "model … (not exist|not found)",
            "invalid … max tokens",
            "signature in thinking",
            "was not found or your project",
        ],
        matches: &[
            "401 Incorrect API key provided: sk-500***",
            "403 The security token included in the request is expired",
        ],
        misses: &["429 Rate limit exceeded - unauthorized due to throttling"],
        ..RULE
    },
    Rule {
        id: "auth-zai",
        class: Auth,
        any: &["^(1000|1001|1002|1003|1004|1315)$"],
        origins: CODES,
        unless: &["throttl*", "rate limit*"],
        matches: &["{\"error\":{\"code\":\"1003\",\"message\":\"…\"}}"],
        misses: &["{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}"],
        ..RULE
    },
    // ---- 3: what the request itself has wrong
    Rule {
        id: "model-not-found",
        class: InvalidRequest,
        any: &[
            "model … (not found|does not exist|not exist|doesn't exist|was not found|is not valid|not a valid|unknown|not recognized|not supported|is not supported|no longer available|no longer supported|deprecated|decommissioned|retired|not available for|isn't supported|is not available in)",
            "(unknown|invalid|no such|unsupported|nonexistent|unrecognized) (model|engine|deployment|provider for model|model name|model id|model identifier)",
            "model (not found|not supported|not available|does not exist|not exist|not available for integrator)",
            "(deployment|endpoint|engine) … (does not exist|not found|not exist)",
            "not found error",
            "no endpoints (found|available)",
            "^model: @$",
            "unable to access … model",
            "模型 … (不存在|不可用|未找到|已下线)",
            "模型不存在",
            "模型 … (找不到|已下線|不支援)",
            "(route|url|path|resource|chat completions) … not found",
            "not found, verify",
            "on demand throughput isn't supported",
            "(could not|cannot|unable to|failed to) (resolve|find|locate) (the |)(model|deployment|engine)",
            "requested model is not available$",
        ],
        unless: &[
            "(currently|temporarily) unavailable",
            "rate limit*",
            "overloaded",
            "context (length|window|size)",
        ],
        matches: &[
            "404 The model `acme-429` does not exist or you do not have access to it.",
            "unknown model acme-2",
        ],
        misses: &["503 The model is overloaded, not found a free slot"],
        ..RULE
    },
    Rule {
        id: "request-shape",
        class: InvalidRequest,
        any: &[
            "(unsupported|unknown|unrecognized|unexpected|invalid|missing|extra|extraneous|duplicate|disallowed|bad|wrong) (request |required |)(parameter|parameters|param|params|field|fields|property|key|option|role|value|values|schema|type|format|json|body|header|payload|url|input|inputs|message|messages|prompt|tool|tools|function|content|content type|media type|mime type|image|file|enum|request argument|chat setting|data|beta)",
            "invalid @",
            "(parameter|parameters|param|field|argument|property|key) … (not supported|unsupported|not allowed|not permitted|invalid|not valid|required|missing|unknown|unrecognized)",
            "(is|are|does|was) not (supported|permitted|allowed) (with|by|for|in|when|on) (this|the|your) (model|endpoint|api|request|version|provider|context)",
            "does not support",
            "don't support",
            "does not match any of",
            "(not support|unsupported) … (effort|tools|tool|image|images|streaming|vision|function|parameter|temperature|role|system|thinking|reasoning)",
            "not permitted",
            "extra (inputs|fields|forbidden)",
            "(must|should|cannot|can't|may not|need to) (not be|be|have|contain|match|provide|include|start|end|alternate|precede|follow)",
            "must either",
            "must be a",
            "(expected|expects) (a|an|one of|object|string|array|number|value|list)",
            "(is|are) (a |)required",
            "(is|are) missing (a|an|the|required)",
            "(role|roles) are (supported|allowed)",
            "media type",
            "(field|property|parameter|argument) required",
            "(cannot|can not|must not) be (empty|null|blank|modified|used)",
            "(is|was) (empty|null|malformed)",
            "(empty array|empty messages|empty content|no messages|no user query)",
            "(failed|unable|could not) to (deserialize|parse the request|parse request|decode the request|validate)",
            "(did|does|do) not match … (schema|expected|pattern|format)",
            "schema … (invalid|not supported|must|too complex|is not)",
            "json schema",
            "(input|schema|request|parameter|body|field|tool call) validation (error*|failed)",
            "(malformed|ill formed) (request|input|json|body)",
            "(roles|messages) … alternate",
            "alternate between",
            "tool use … (without|not found|must|unexpected)",
            "(tool result|tool results|tool call|tool calls|tool call id|tool use ids|tool use id|tool message|tool output) … (must|not found|missing|without|mismatch|invalid|unexpected|no corresponding|did not|required)",
            "no tool (call|output|calls) found",
            "unexpected … (tool use|tool result|tool use id|role|field|key)",
            "(thinking|redacted thinking) … (cannot be modified|must|expected|invalid)",
            "reasoning content … must",
            "invalid signature",
            "without its required following item",
            "previous response … (not found|cannot be used|stale|expired)",
            "item with id @",
            "(no|not) response found",
            "multiple of",
            "(does not|doesn't|not) exist",
            "name cannot be empty",
            "(failed to|could not|cannot|unable to|couldn't) (fetch|download|load|retrieve|open|process|decode|read) (the |)(image|images|file|media|video|audio|document|attachment)",
            "below (minimum|min) value",
            "above (maximum|max) value",
            "(decimal|integer|string|number) (below|above) (min|max|minimum|maximum)",
            "(contains|contain|has) (an |)invalid",
            "invalid arguments",
            "not (a |)valid (model|value|parameter|json schema|request|role|url|image|base64|format|option|string|integer|number|type|enum|uuid|id|tool|name|choice|file)",
            "(is|are) not valid$",
            "(is|are) not valid.",
            "not valid under",
            "unable to generate parser",
            "(chat template|jinja|template error|raise exception)",
            "failed to parse tool call",
            "tool use failed",
            "(grammar|compiled grammar) … too (large|complex)",
            "(no|not) … required (parameter|field)",
            "verify your api base",
            "(image|file) format",
            "data policy",
            "zero data retention",
            "parameter error",
            "not available for your (team|account|organization|region|plan)",
            "(参数|请求体|请求格式|字段) … (错误|无效|不合法|缺失|不支持)",
            "参数(错误|无效|异常)",
            "(參數|請求|欄位|格式) … (錯誤|無效|不合法|缺少|不支援|有誤)",
            "(请求|参数)格式(有误|错误)",
            "(parámetro|parâmetro|paramètre|параметр|パラメータ|파라미터)",
        ],
        unless: &[
            "overloaded",
            "(high demand|capacity)",
            "(please retry|try again later)",
            "rate limit*",
            "too many requests",
            "throttl*",
            "temporarily",
            "must be reduced",
            "not valid json",
            "(invalid|malformed) json response",
            "(response|completion|output|answer|reply) (is|was) (empty|null|malformed)",
        ],
        matches: &[
            "400 Unsupported parameter: 'timeout'.",
            "500 Unsupported param: tools",
        ],
        misses: &["429 Too Many Requests: invalid pace, rate limit hit"],
        ..RULE
    },
    Rule {
        id: "nan-in-generation",
        class: ServerError,
        any: &["(nan|na n|floating point|not a number) … detected in generation"],
        matches: &["400 Floating point NaN (not-a-number) is detected in generation"],
        misses: &["400 NaN is no temperature"],
        ..RULE
    },
    // ---- 4: account limits
    Rule {
        id: "paced-limit",
        class: RateLimit,
        any: &[
            "(requests|request|tokens|token|queries|input tokens|calls|messages|generate content requests) per (minute|min|second|sec)",
            "per (minute|min|second)",
            "per 60s exceeded",
            "by minute",
            "(rpm|tpm|qps|qpm)",
            "(concurren*|parallel) … (limit|quota|reached|exceed*|too many|reduce)",
            "concurrent requests",
            "not your usage limit",
            "limiting requests",
            "too many messages in the last",
            "(this|last|each|every) minute",
            "minute (level |)(quota|limit|window)",
            "throttling allocation quota",
            "allocated quota exceeded",
            "in kurzer zeit zu viele",
            "frequency limit",
            "reset in # seconds",
            "(par minute|por minuto|pro minute|毎分|분당|每分钟|в минуту)",
            "local total request limit",
            "quota … retry in",
        ],
        unless: &[
            "(account's|global|overall message|overall) rate limit",
            "rate limit that restricts",
            "credits per",
            "day rate limit",
            "per (day|week|month)",
            "(rpd|tpd)",
            "(weekly|daily|monthly) … limit",
            "day limit: #",
        ],
        matches: &[
            "429 limit of 15 requests per minute",
            "Server is temporarily limiting requests (not your usage limit)",
        ],
        misses: &["429 limit of 200 requests per day"],
        ..RULE
    },
    Rule {
        id: "usage-limit",
        class: UsageLimit,
        any: &[
            "usage (limit|limits|cap|quota)",
            "(session|weekly|daily|monthly|hourly|5 hour|7 day|hour|minute|day|plan|account|message|messages|premium request|inference|individual|global rate|overall message rate|free|credit) (limit|quota|limits|allowance) … (reached|exceeded|hit|exhausted|reset*|used|is)",
            "(day|hour|week) (usage |rate |message |request |)limit",
            "(exceeded|exceed|reached|exhausted) … (your|the|account|organization|account's) (daily|weekly|monthly|hourly|usage|account|account's|quota|allowance|limit|plan|copilot|message|messages)",
            "quota (exceeded|exhausted|reached|used|limit|insufficient|depleted)",
            "(exceed*|exhausted|no|out of|insufficient) … quota",
            "quota … (exceed*|exhausted|reached|reset*|will reset)",
            "exhausted your (capacity|quota)",
            "quota will reset",
            "(requests|tokens|messages|calls|images|user|limit) per (day|week|month|hour)",
            "per (day|month|week)",
            "(rpd|tpd|by day|by model by day)",
            "(for this|this) (month|week|day)",
            "(daily|weekly|monthly) … limit",
            "account's rate limit",
            "global rate limit",
            "rate limit that restricts",
            "(will|limit) (reset|resets) (at|in|on|after)",
            "limit … resets",
            "regain access",
            "credits per # hour",
            "(used up|used all|exceeded|exhausted) … (daily|weekly|monthly|hourly|free) (free |)(allocation|allowance|quota|limit|credits|requests)",
            "usage (not included|limit reached)",
            "(使用上限|限额|配额|用量|额度) … (达到|重置|用完|用尽|耗尽|超出|超过|上限|不足)",
            "(已达到|达到|超出|超过) … (使用上限|限额|配额|上限|额度)",
            "(límite|limite) … (uso|mensagens|utilisation|mensajes)",
            "(nutzungslimit|kontingent|limite d'utilisation|limite da sessão|limite de uso|límite de uso|límite de sesión|лимит использования)",
            "(利用上限|利用制限|使用上限に|이용 한도|사용 한도)",
            "(利用制限|使用制限|사용 한도|사용량 한도)",
            "(公平使用|fair use)",
            "set limit exceeded",
            "(使用上限|限額|配額|用量|額度) … (達到|重置|用完|用盡|耗盡|超出|超過|上限)",
            "(已達|達到|超出|超過) … (使用上限|限額|配額|上限|額度)",
            "used # of (your|the) … (usage|quota|limit|allowance|plan)",
            "(allowance|limit|limits|quota) (will |)(renew|renews|refresh*|replenish*)",
            "out of (messages|requests|prompts) (until|for|this)",
            "(일일|주간|월간) (사용 |)한도",
            "(límite|limite) (diario|semanal|mensual|diário|mensal|quotidienne|journalière|hebdomadaire|mensuelle)",
            "(tageslimit|wochenlimit|monatslimit|tageskontingent)",
            "(дневной|суточный|недельный|месячный) лимит",
            "(本日|今日|今週|今月) … (上限|制限)",
        ],
        unless: &[
            "not your usage limit",
            "exceeded retry limit",
            "rate limited",
            "service tier capacity exceeded",
            "per 60s",
            "concurren*",
            "(速率限制|频率限制)",
            "current requests list",
            "e.g. check quota",
            "error code token limit",
            "account quotas for amazon",
            "possible quota",
            "rate limit specific to this model",
            "retry limit",
            "max retries exceeded",
            "request rate",
        ],
        matches: &[
            "429 quota exceeded",
            "You have reached your monthly message limit: exceeded your plan",
        ],
        misses: &["429 exceeded retry limit, too many requests"],
        ..RULE
    },
    Rule {
        id: "limit-reached",
        class: UsageLimit,
        any: &[
            "limit reached",
            "reached … (limit|limits|quota|cap|maximum)",
            "(hit|hits) … (limit|quota)",
        ],
        unless: &[
            "rate limit (is |was |has been |)(reached|exceeded|hit|error|on|for|of|breached|violated)",
            "rate limit for your",
            "rate limited",
            "rate limit specific",
            "(tpm|rpm|per minute|per second|concurren*)",
            "(速率限制|频率限制)",
            "retry limit",
            "max retries",
            "not your usage limit",
            "request limit reached",
            "(connection|connections) limit",
        ],
        matches: &["limit_reached", "You hit the quota of your team"],
        misses: &[
            "rate_limit_reached: slow down",
            "websocket_connection_limit_reached",
        ],
        ..RULE
    },
    Rule {
        id: "usage-limit-zai",
        class: UsageLimit,
        any: &["^(1304|1308|1310|1313)$", "[1308]"],
        matches: &["{\"error\":{\"code\":\"1308\",\"message\":\"…\"}}"],
        misses: &["{\"error\":{\"code\":\"1302\",\"message\":\"…\"}}"],
        ..RULE
    },
    Rule {
        id: "plan-too-small",
        class: Billing,
        any: &[
            "upgrade to (plus|pro|max|team|a paid|a higher)",
            "upgrade your (plan|account|subscription)",
        ],
        unless: &["rate limit*", "too many requests", "try again in"],
        matches: &["To use this model upgrade to Pro."],
        misses: &["Rate limit hit, upgrade your plan or try again in 3s"],
        ..RULE
    },
    // ---- 5: transient, in words
    Rule {
        id: "overloaded",
        class: Overloaded,
        any: &[
            "overload*",
            "(at|over|no|out of|insufficient|exceeded|exceeds|lack of|limited) (full |maximum |available |)capacity",
            "capacity … (exceeded|exhausted|reached|unavailable|constraints|limit|available)",
            "no capacity",
            "model capacity",
            "(high|heavy|peak|increased|elevated|excessive|unusual|too much|unusually high|very high) (demand|load|traffic|volume|usage)",
            "(swamped|saturated|overwhelmed|congested|congestion|oversubscribed)",
            "too many (active |)users",
            "no (gpu|gpus|worker|workers|slot|slots|instance|instances|replica|replicas|compute) … available",
            "(compute|computing|gpu) (resources|capacity) … (insufficient|limited|exhausted|unavailable)",
            "(request was shed|shed due to|load shedding)",
            "(server|service|model|engine|system|we) (is|are|'re) (too |currently |temporarily |very |)(busy|full)",
            "(server|servers|engine|model) (currently |temporarily |)(busy|overwhelmed)",
            "too busy",
            "queue is full",
            "(slots|workers|instances|replicas|backends) (are |)(busy|full)",
            "no (idle|free|available) (slots|workers|instances|gpus|replicas|capacity)",
            "too many connections",
            "(connection|connections) limit (reached|exceeded)",
            "temporarily out of capacity",
            "error code 429 … vertex",
            "resource exhausted. please try again later",
            "负载 … (饱和|已满|过高)",
            "(负载已满|负载已饱和|负载过高|访问量过大|繁忙|过载|服务器忙|排队)",
            "(人数过多|用户过多|负载较高|负载过大|负载较大|算力不足|拥挤|拥堵|高峰)",
            "混み合",
            "負荷",
            "(負載|過載|擁擠|壅塞|人數過多|忙碌|忙線)",
            "(混雑|過負荷|과부하|혼잡)",
            "(sobrecargado|saturado|überlastet|surchargé|sobrecarregado)",
            "(перегружен|перегружена|перегружены|перегрузка)",
        ],
        unless: &[
            "exhausted your capacity",
            "token capacity",
            "overloaded background task",
        ],
        matches: &[
            "529 overloaded_error",
            "The service is currently experiencing high demand",
        ],
        misses: &["You have exhausted your capacity on this model"],
        ..RULE
    },
    Rule {
        id: "overloaded-zai",
        class: Overloaded,
        any: &["^(1305|1312)$"],
        origins: CODES,
        matches: &["429 {\"error\":{\"code\":\"1305\",\"message\":\"…\"}}"],
        misses: &["429 {\"error\":{\"code\":\"1302\",\"message\":\"…\"}}"],
        ..RULE
    },
    Rule {
        id: "rate-limit",
        class: RateLimit,
        any: &[
            "rate limit*",
            "ratelimit*",
            "limited rate",
            "too many requests",
            "toomanyrequests",
            "too many tokens",
            "too many … requests",
            "throttl*",
            "request rate",
            "request limit",
            "requests limit (exceeded|reached)",
            "(頻率|速率|速度) … (過高|過快|限制|上限|超)",
            "(請求過多|請求過於頻繁|頻繁|併發|並發)",
            "requests list",
            "rate (increased|exceeded|too high)",
            "slow down",
            "enhance your calm",
            "no deployments available",
            "(cooling down|in cooldown)",
            "too many (calls|attempts|queries|submissions|concurren*|simultaneous*)",
            "(sent|made|submitted|sending|making) too many",
            "burst (limit|rate|too fast)",
            "being limited",
            "flow control",
            "(requests|request) … too (quickly|fast|frequent*)",
            "retry limit … 429",
            "resource exhausted",
            "resource has been exhausted",
            "exceed* … account quotas",
            "token usage",
            "(频率|速率|速度) … (过高|过快|限制|上限|超)",
            "(访问频率|请求速度|请求频率)",
            "(limite de débit|limite de taxa|límite de velocidad|límite de tasa|ratenbegrenzung|ratenlimit|anfragelimit|速率限制|レート制限|속도 제한|요청 한도)",
            "(限流|请求过多|请求过于频繁|频繁|速率限制|并发)",
            "(レート制限|요청이 너무 많)",
            "リクエスト … 多すぎ",
            "(demasiadas|muitas|excesso de) (solicitudes|peticiones|consultas|solicitações|requisições|pedidos)",
            "(请求|請求)(次数|次數)(过多|過多|超限)",
            "trop de (requêtes|demandes)",
            "zu viele (anfragen|aufrufe|requests)",
            "(слишком много|превышен лимит) запросов",
            "error code: 1015",
        ],
        matches: &["429 Too Many Requests", "rate_limit_exceeded: slow down"],
        misses: &["429 overloaded"],
        ..RULE
    },
    Rule {
        id: "rate-limit-zai",
        class: RateLimit,
        any: &["^(1302|1303)$"],
        origins: CODES,
        matches: &["{\"error\":{\"code\":\"1302\",\"message\":\"…\"}}"],
        misses: &["{\"error\":{\"code\":\"1305\",\"message\":\"…\"}}"],
        ..RULE
    },
    Rule {
        id: "unreachable",
        class: Network,
        any: &[
            "(cannot|can't|could not) connect to host",
            "(cannot|can't|could not) contact dns",
            "connect call failed",
            "os error (32|54|60|61|101|104|110|111|113|10053|10054|10060|10061)",
            "(invalid chunk length|chunked encoding error)",
            "(empty reply from server|transfer closed with|recv failure)",
            "unknown host",
            "nsurl error domain",
            "eproto",
            "(eof occurred|transport is closing|connection is closing|error while dialing)",
            "^load failed",
            "(host|hostname) (could not|cannot|can't) be (found|resolved|reached)",
            "(appears to be offline|not connected to the internet|no internet connection)",
            "error occurred while sending the request",
            "unable to read data from the transport connection",
            "channel closed",
            "(client connector|client payload|sslerror|connect exception|ssleof error|ssl eof error)",
            "curle (operation timedout|recv error|send error|got nothing|partial file|couldnt connect|couldnt resolve host)",
            "errno (54|60|61|101|104|110|111|113|10051|10053|10054|10060|10061|10065|11001)",
        ],
        matches: &[
            "ServiceUnavailableError: Cannot connect to host relay.example:443",
            "OSError: [Errno 104]",
        ],
        misses: &["[Errno 2] No such file or directory"],
        ..RULE
    },
    Rule {
        id: "transport",
        class: Network,
        any: &[
            "(server|upstream|backend) connection (error|failed|failure|refused|reset|lost|timeout)",
            "(econnreset|econnrefused|econnaborted|etimedout|enotfound|epipe|enetunreach|ehostunreach|enetdown|ehostdown|esockettimedout|wsaeconnreset)",
            "(eai again|eai fail|eai noname)",
            "und err",
            "win error (10053|10054|10060|10061|11001|11002)",
            "socket exception",
            "connection (reset by peer|aborted|reset error|refused error)",
            "socket hang up",
            "other side closed",
            "err stream premature close",
            "premature close",
            "(peer|remote end|server) closed connection",
            "remote (end closed|disconnected|protocol error)",
            "broken pipe",
            "(getaddrinfo|name or service not known|no such host|nodename nor servname)",
            "(failed host lookup|no address associated with hostname|could not resolve host|temporary failure in name resolution)",
            "(goaway|nghttp2)",
            "bad record mac",
            "(ssl|tls|ssl/tls|sslv3) alert",
            "stream (was |)reset",
            "(rst stream|refused stream)",
            "transport error … closed",
            "payload is not completed",
            "transfer encoding error",
            "(connexion|conexión|conexão|verbindung|соединение|соединения|подключение|подключения) … (échoué|perdue|refusée|interrompue|rechazada|perdida|cerrada|recusada|cancelamento|encerrada|abgelehnt|geschlossen|unterbrochen|fehlgeschlagen|разорвано|прервано|установить)",
        ],
        unless: &["(service unavailable|bad gateway|gateway timeout)"],
        matches: &[
            "read ECONNRESET",
            "http2: server sent GOAWAY and closed the connection",
        ],
        misses: &["401 econ report refused"],
        ..RULE
    },
    Rule {
        id: "page-for-json",
        class: ServerError,
        any: &[
            "is not valid json",
            "unexpected token … json",
            "unexpected token <",
            "invalid character … looking for beginning of value",
            "expecting value: line 1 column 1",
            "expected value at line 1 column 1",
            "(not|non|invalid|malformed|unparseable) json response",
            "(malformed|unparseable|garbled|corrupt|corrupted|unexpected) (api |server |upstream |provider |http |model |)response",
            "invalid (api |server |upstream |provider |http |model |)response (from|body|received)",
            "(malformed|invalid|corrupt|corrupted) (streaming |stream |sse |json |)(chunk|chunks|event stream)",
            "(failed to|unable to|could not|cannot|couldn't) (parse|deserialize|unmarshal) (the |)(json |api |server |upstream |provider |model |)(response|stream)",
        ],
        status: Statuses::NotRefused,
        matches: &[
            "Unexpected token '<' in body: is not valid JSON",
            "invalid json response body",
        ],
        misses: &["400 Unexpected token 'x', is not valid JSON"],
        ..RULE
    },
    Rule {
        id: "server-said-so",
        class: ServerError,
        any: &[
            "(service unavailable|bad gateway|gateway time out|gateway timeout|internal server error)",
            "error occurred while processing",
            "server experienced an error",
        ],
        unless: &[
            "(upstream connect|reset before|reset reason|disconnect/reset)",
            "connection termination",
        ],
        status: Statuses::NotRefused,
        matches: &["500 Internal server error", "503 Service Unavailable"],
        misses: &[
            "503 upstream connect error or disconnect/reset before headers: service unavailable",
        ],
        ..RULE
    },
    Rule {
        id: "server-code",
        class: ServerError,
        any: &[
            "^(service unavailable|service unavailable exception|internal server exception|internal failure|internal server error exception|model error exception)$",
        ],
        origins: CODES,
        matches: &[
            "{\"status_code\":400,\"__type\":\"serviceUnavailableException\",\"name\":\"ServiceUnavailableException\"}",
        ],
        misses: &["{\"name\":\"ThrottlingException\"}"],
        ..RULE
    },
    Rule {
        id: "server-exception",
        class: ServerError,
        any: &[
            "(internal server|internal server error|internal failure|service unavailable|model error|model stream error|model not ready|model timeout) exception",
        ],
        unless: &["throttl*"],
        matches: &["400 acme - internalServerException"],
        misses: &["400 acme - validationException: server"],
        ..RULE
    },
    Rule {
        id: "browser-challenge",
        class: ServerError,
        any: &["(challenge platform|checking your browser|just a moment|attention required)"],
        origins: EVERYWHERE,
        matches: &["403 <html><title>Just a moment...</title></html>"],
        misses: &["403 just forbidden"],
        ..RULE
    },
    Rule {
        id: "gateway-page",
        class: ServerError,
        any: &[
            "(origin|web server|cloudflare|cloudfront|varnish|gateway|nginx|cf wrapper|cf error|error code|timeout occurred|timed out|unavailable|server error|load balancer|openresty|apache|envoy)",
        ],
        origins: PAGES,
        status: Statuses::NoneOr(500, 599),
        matches: &[
            "<html><head><title>acme.example | 524: A timeout occurred</title></head></html>",
        ],
        misses: &[
            "<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>",
        ],
        ..RULE
    },
    Rule {
        id: "gateway-reset-overflow",
        class: ServerError,
        any: &["reset reason: overflow"],
        matches: &["503 upstream connect error. reset reason: overflow"],
        misses: &["503 upstream connect error. reset reason: connection termination"],
        ..RULE
    },
    Rule {
        id: "network",
        class: Network,
        any: &[
            "(econnreset|econnrefused|econnaborted|etimedout|enotfound|epipe|enetunreach|ehostunreach|enetdown|ehostdown|esockettimedout|econnreset)",
            "(eai again|eai fail)",
            "und err",
            "err (connection|network|timed out|internet|name not|socket|stream premature|http2|ssl|proxy|tunnel|address|empty response|incomplete)",
            "socket (hang up|error|closed|timeout|connection|is closed|disconnected)",
            "(connection|connect|connections) (error|refused|reset|closed|lost|aborted|timed out|terminated|dropped|failed|failure|interrupted|timeout|termination|broken|was closed|was reset|closing|reset by)",
            "(connection|socket|stream) … (closed|reset|lost|dropped|terminated|refused|interrupted|aborted) (unexpectedly|by|before)",
            "upstream (connect|reset)",
            "reset before (headers|response)",
            "reset reason",
            "(unable|failed|could not|cannot|can't|couldn't) (to |)(connect|reach|establish|resolve|lookup|perform|communicate)",
            "establish a new connection",
            "(timed out|time out|timeout|timeouts)",
            "took (too long|longer than)",
            "(unresponsive|not responding|did not respond)",
            "(deadline exceeded|deadline has elapsed)",
            "(fetch failed|failed to fetch|fetch error)",
            "network (error|connection|request failed|is unreachable|issue|timeout|changed|failure|socket|connectivity)",
            "network or model provider error",
            "(dns|getaddrinfo|name resolution|name or service not known|nodename nor servname|no such host|lookup address)",
            "^terminated$",
            "terminated at",
            "(type error|error): terminated",
            "terminated: other",
            "(premature|prematurely) (close|end|closed|ended)",
            "other side closed",
            "(peer|remote|remote end|server|remote host|client) (closed|disconnected|sent goaway)",
            "remote (end |protocol error|disconnected)",
            "broken pipe",
            "unexpected (eof|end of (file|json|json input|data|stream|input))",
            "unexpected end of",
            "(unterminated string|eof while parsing|end of file before)",
            "(stream|streaming|streamed) (response |)(ended|closed|disconnected|interrupted|stalled|stall|error|reset|terminated|failed|read error|was interrupted|relay|aborted)",
            "stream … (ended|closed) (before|without)",
            "(stream|response) … before (message stop|response completed|completion|a terminal|a finish|finish)",
            "(response|body|stream) (body |)closed",
            "stream truncated",
            "incomplete json",
            "(truncated|partial|cut off) (json|response|stream|chunk)",
            "ended (without|before)",
            "stream read error",
            "(goaway|rst stream|refused stream)",
            "nghttp2",
            "internal error; received from peer",
            "http2: (response body closed|server|client|timeout|stream)",
            "http/2 … (error|stream|closed)",
            "(tls|ssl) (handshake|error|connect|connection)",
            "ssl error",
            "(error decoding|error reading|decoding) … (response body|a body|server response|body)",
            "error decoding response body",
            "error sending request",
            "error reading a body",
            "request or response body error",
            "incomplete (chunked read|message|read|response)",
            "without (sending complete|sending any|complete message|response)",
            "(websocket|web socket) … (closed|error|disconnected|failed|connection)",
            "proxy (error|connection)",
            "(i/o|io|read|write|connect|handshake|pool) (timeout|error|operation timed out)",
            "(disconnected|disconnect) before",
            "max retries exceeded with url",
            "received … before message start",
            "without (a |)finish reason",
            "api connection error",
            "before any complete data",
            "(网络|连接|流读取) … (错误|失败|超时|中断|异常|断开)",
            "(超时|连接超时|网络错误|连接失败|连接被重置)",
            "(接続|ネットワーク|연결|네트워크) … (エラー|失敗|오류|실패)",
            "^1234$",
            "fail to touch upstream",
            "went to sleep",
            "closed before (responding|replying|answering|any|a)",
            "(stopped responding|no activity|nothing for # seconds|idle for)",
            "(網路|連線|連接|串流) … (錯誤|失敗|逾時|中斷|異常|斷開)",
            "逾時",
            "cannot retry after request body was written",
            "(closed|dropped|lost|disconnected|interrupted|ended|stopped|died) mid (response|stream|generation|turn|request)",
            "@ eof",
            "eof$",
        ],
        unless: &[
            "returned an empty",
            "empty response",
            "stream error at",
            "(bad gateway|web server|origin web server|gateway time*|gateway timeout)",
        ],
        status: Statuses::NotRefused,
        matches: &[
            "Connection error.",
            "stream ended before message_stop",
            "Get \"https://relay.example/v1/models\": EOF",
        ],
        misses: &["400 Bad Request: unexpected EOF"],
        ..RULE
    },
    Rule {
        id: "server-error",
        class: ServerError,
        any: &[
            "(internal|server|backend|upstream|unknown|unexpected) (server |service |internal |provider |)(error|errors|failure)",
            "(server|service|upstream|backend|provider|gateway|model|api) … (unavailable|not available|unreachable|experienced an error|had an error|is down)",
            "(server|service|upstream|backend|provider|gateway) … failed",
            "(service|temporarily|currently|upstream) unavailable",
            "bad gateway",
            "(gateway|origin|proxy) (time out|timeout|timed out|read timeout|error)",
            "gateway time",
            "error occurred while processing",
            "error while processing",
            "error processing",
            "(internal|unexpected) error",
            "an internal error",
            "unable to (process|handle|serve|complete)",
            "unable to handle",
            "(temporarily|momentarily) (unable|unavailable)",
            "(empty|blank|no) (response|completion|output|content)",
            "(returned|received) (an |)empty",
            "(did not|didn't|does not|failed to) (provide|return|produce|generate|yield) (any|a|an|the) (assistant |final |valid |usable |model |text |)(messages|message|response|output|content|text|completion|choices|candidates|answer|reply|result|data)",
            "(returned|contained|contains|produced|generated|received) no (usable |valid |assistant |text |model |)(messages|message|response|output|content|text|completion|choices|candidates|answer|reply|result|data)",
            "no (choices|candidates|generations|assistant message|assistant messages)",
            "(failed to|unable to|could not|couldn't|cannot) (get|obtain|receive|fetch|retrieve) (a |an |the |any |)(valid |)(response|completion|answer|reply)",
            "(model|service|server) is not (yet |)ready",
            "encountered (an|a) (unexpected |internal |unknown |)(error|issue|problem|exception)",
            "(under|scheduled|planned) maintenance",
            "(temporarily|currently) (offline|down)",
            "engine (core|dead)",
            "(worker|process|runner|engine|server|backend) … (crashed|died|exited unexpectedly|stopped unexpectedly)",
            "(model failed to load|failed to load the model)",
            "(unhandled|uncaught) exception",
            "(response|completion|output|answer|reply) (is|was) (empty|null)",
            "(produced|generated) no tokens",
            "(error|erro) interno",
            "внутренняя ошибка",
            "(сервис|сервер|служба) … (недоступен|недоступна)",
            "(servicio|serviço|service|dienst|server) … (no disponible|indisponível|indisponible|nicht verfügbar|nicht erreichbar)",
            "no healthy (upstream|upstreams|deployment|deployments|backend|backends|instance|instances)",
            "(currently|still) loading",
            "model is (loading|unloaded|being loaded)",
            "runner process",
            "(please retry|retry your request|try your request again|try again later|try again in|please try again|retry delay)",
            "(api|http|upstream|server|provider|model) error$",
            "web server",
            "finish reason: error",
            "finish reason error",
            "malformed function call",
            "(服务|系统|服务器) … (异常|错误|不可用|内部错误|暂时)",
            "(サーバーエラー|内部エラー|서버 오류)",
            "(伺服器|服務|系統) … (異常|錯誤|不可用|暫時|維護)",
            "(服务端|服务器|服务|系统) … (维护|暂时不可用)",
            "非 json",
            "(error del servidor|erreur du serveur|erreur interne|serverfehler)",
            "unable to reach … provider",
            "at capacity",
        ],
        status: Statuses::NotRefused,
        matches: &[
            "An internal error has occurred. Please retry.",
            "The upstream is unavailable",
            "The model did not provide any assistant messages",
            "Failed to get a response; retried 5 times",
        ],
        misses: &["400 invalid_request_error: field server_error is not allowed"],
        ..RULE
    },
    // ---- 6: general codes
    Rule {
        id: "aborted",
        class: Aborted,
        any: &[
            "(request|operation|stream|call|generation|run|task|turn) (was |has been |is |)(aborted|cancelled|canceled|interrupted)",
            "(subagent|agent|sub agent) (was |)(aborted|cancelled|canceled|interrupted)",
            "context canceled",
            "(abort error|abort err)",
            "(exception|error): (canceled|cancelled|aborted)$",
            "^(aborted|cancelled|canceled|interrupted)$",
            "(cancelled|canceled|aborted) error",
            "err (cancelled|canceled|aborted)",
            "keyboard interrupt",
            "(sigint|sigterm)",
            "(用户取消|使用者取消|已取消|已中止|手动停止)",
        ],
        matches: &["Request was aborted."],
        misses: &["Connection aborted."],
        ..RULE
    },
    Rule {
        id: "grpc-status",
        class: ServerError,
        any: &["^(internal|unavailable|unknown|data loss)$"],
        status: Statuses::NoneOr(500, 599),
        matches: &["{\"error\":{\"status\":\"UNAVAILABLE\",\"message\":\"-\"}}"],
        misses: &["400 {\"error\":{\"status\":\"UNKNOWN\",\"message\":\"-\"}}"],
        ..RULE
    },
    Rule {
        id: "access-terminated",
        class: OtherFatal,
        any: &["access terminated"],
        matches: &["403 access_terminated_error"],
        misses: &["connection terminated"],
        ..RULE
    },
    Rule {
        id: "invalid-code",
        class: InvalidRequest,
        any: &[
            "(invalid request error|invalid request|bad request error|invalid argument|failed precondition|validation exception|unprocessable entity|invalid params|invalid parameter|bad request|not found error|unsupported parameter|invalid prompt|model not found|1210|1211|1212|1213|1214|1215)",
            "(method not allowed|operation not supported|unsupported api for model|json validate failed|image parse error|invalid base64|duplicate item id|invalid encrypted content|model not open)",
        ],
        unless: &["rate limit*", "try again later", "(please retry)"],
        matches: &["{\"type\":\"invalid_request_error\",\"message\":\"no\"}"],
        misses: &["{\"type\":\"api_error\",\"message\":\"no\"}"],
        ..RULE
    },
    Rule {
        id: "server-code-refused",
        class: ServerError,
        any: &[
            "^(internal server error|internal error|backend error|bad gateway|gateway timeout|provider unavailable)$",
        ],
        origins: CODES,
        status: Statuses::Only(&[400, 422]),
        matches: &["400 {\"error\":{\"type\":\"internal_error\",\"message\":\"-\"}}"],
        misses: &["401 {\"error\":{\"type\":\"server_error\",\"message\":\"-\"}}"],
        ..RULE
    },
    // ---- 7: the status
    Rule {
        id: "status-529",
        class: Overloaded,
        status: Statuses::Only(&[529]),
        matches: &["HTTP 529"],
        misses: &["HTTP 503"],
        ..RULE
    },
    Rule {
        id: "status-429",
        class: RateLimit,
        status: Statuses::Only(&[429]),
        matches: &["HTTP 429"],
        misses: &["page 429 of 500"],
        ..RULE
    },
    Rule {
        id: "status-401",
        class: Auth,
        status: Statuses::Only(&[401, 407]),
        matches: &["HTTP 401"],
        misses: &["HTTP 403"],
        ..RULE
    },
    Rule {
        id: "status-402",
        class: Billing,
        status: Statuses::Only(&[402]),
        matches: &["HTTP 402"],
        misses: &["HTTP 401"],
        ..RULE
    },
    Rule {
        id: "refused-for-now",
        class: RateLimit,
        status: Statuses::Only(&[403]),
        max_hint_ms: Some(600_000),
        matches: &["HTTP 403, retry after 30 seconds"],
        misses: &["HTTP 403, retry after 30 hours"],
        ..RULE
    },
    Rule {
        id: "status-403",
        class: Auth,
        status: Statuses::Only(&[403]),
        matches: &["HTTP 403"],
        misses: &["HTTP 401"],
        ..RULE
    },
    Rule {
        id: "status-408",
        class: Network,
        status: Statuses::Only(&[408]),
        matches: &["HTTP 408"],
        misses: &["HTTP 409"],
        ..RULE
    },
    Rule {
        id: "status-409",
        class: ServerError,
        status: Statuses::Only(&[409, 425]),
        matches: &["HTTP 409"],
        misses: &["HTTP 408"],
        ..RULE
    },
    Rule {
        id: "status-legal",
        class: ContentFilter,
        status: Statuses::Only(&[451]),
        matches: &["HTTP 451"],
        misses: &["HTTP 450"],
        ..RULE
    },
    Rule {
        id: "status-499",
        class: Aborted,
        status: Statuses::Only(&[499]),
        matches: &["HTTP 499"],
        misses: &["HTTP 498"],
        ..RULE
    },
    Rule {
        id: "status-permanent",
        class: OtherFatal,
        status: Statuses::Only(&[501, 505, 507, 511]),
        matches: &["HTTP 507"],
        misses: &["HTTP 506"],
        ..RULE
    },
    Rule {
        id: "status-4xx",
        class: InvalidRequest,
        status: Statuses::Range(400, 499),
        matches: &["HTTP 422"],
        misses: &["HTTP 522"],
        ..RULE
    },
    Rule {
        id: "status-5xx",
        class: ServerError,
        status: Statuses::Range(500, 599),
        matches: &["HTTP 520"],
        misses: &["HTTP 420"],
        ..RULE
    },
    // ---- 8: words that alone say little
    Rule {
        id: "opaque",
        class: ServerError,
        any: &[
            "(provider|upstream|backend|model provider) (nim |)returned (an |)error",
            "upstream error",
            "something went wrong",
            "error (has |)occurred",
            "(generation|inference|prediction|completion) failed",
            "model output error",
        ],
        matches: &["Provider returned error"],
        misses: &["429 Provider returned error"],
        ..RULE
    },
    Rule {
        id: "weak-auth",
        class: Auth,
        any: &["(unauthorized|unauthorised|forbidden|authentication|unauthenticated)"],
        matches: &["forbidden"],
        misses: &["429 forbidden"],
        ..RULE
    },
    Rule {
        id: "weak-invalid",
        class: InvalidRequest,
        any: &[
            "(not found|invalid|unsupported|bad request|malformed|not supported|does not exist)",
        ],
        matches: &["the file was not found"],
        misses: &["500 not found"],
        ..RULE
    },
    Rule {
        id: "weak-rate",
        class: RateLimit,
        any: &["(quota|exhausted)"],
        matches: &["quota"],
        misses: &["500 quota"],
        ..RULE
    },
];

#[cfg(test)]
mod tests {
    use super::RULES;
    use crate::classify::{Classifier, ErrorFacts};
    use crate::time::UnixMillis;

    /// CL7, CL8: each rule decides its samples (so that without it they fail) and not its look-alikes.
    #[test]
    fn every_rule_claims_what_it_says() {
        let classifier = Classifier::shared();
        let mut wrong = Vec::new();
        for rule in RULES {
            assert!(
                !rule.matches.is_empty() && !rule.misses.is_empty(),
                "`{}` has no samples",
                rule.id
            );
            for sample in rule.matches {
                let verdict = classifier.classify(sample, &ErrorFacts::new(), UnixMillis(0));
                if verdict.rule.as_str() != rule.id {
                    wrong.push(format!(
                        "`{}` does not decide {sample:?}; `{}` does",
                        rule.id, verdict.rule
                    ));
                }
            }
            for sample in rule.misses {
                let verdict = classifier.classify(sample, &ErrorFacts::new(), UnixMillis(0));
                if verdict.rule.as_str() == rule.id {
                    wrong.push(format!("`{}` decides {sample:?}", rule.id));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Names are told apart.
    #[test]
    fn names_of_rules_are_unique() {
        for (at, rule) in RULES.iter().enumerate() {
            assert!(
                RULES[..at].iter().all(|other| other.id != rule.id),
                "`{}` stands twice",
                rule.id
            );
        }
    }
}
