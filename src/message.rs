//! What an agent hands over when a model call has ended.
//!
//! [`AssistantMessage`] reads what agents really write (camelCase JSON, unknown fields ignored) and is as
//! easily built in code. Deliberately absent: the content itself. A retry policy needs to know what kinds
//! of things were produced ([`Produced`]), not what they say.

use core::fmt;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;

/// Why a model call ended (SPEC section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
// Exhaustive: SPEC section 1 names exactly these five.
pub enum StopReason {
    /// The model finished.
    Stop,
    /// The output limit was reached.
    Length,
    /// The model wants tools run; the run goes on.
    ToolUse,
    /// The call failed.
    Error,
    /// The call was aborted.
    Aborted,
}

impl StopReason {
    /// Every reason, in order of declaration.
    pub const ALL: [Self; 5] = [
        Self::Stop,
        Self::Length,
        Self::ToolUse,
        Self::Error,
        Self::Aborted,
    ];

    /// Its name on the wire: `toolUse`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolUse => "toolUse",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }

    /// The reason with that name on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Tokens that the call used. Numbers only the policy reads; anything missing or below zero is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usage {
    /// Uncached input tokens.
    #[serde(deserialize_with = "lenient_count")]
    pub input: u64,
    /// Output tokens.
    #[serde(deserialize_with = "lenient_count")]
    pub output: u64,
    /// Input tokens read from a cache.
    #[serde(deserialize_with = "lenient_count")]
    pub cache_read: u64,
    /// Input tokens written to a cache.
    #[serde(deserialize_with = "lenient_count")]
    pub cache_write: u64,
}

impl Usage {
    /// Of `input` uncached and `cache_read` cached tokens.
    #[must_use]
    pub const fn of_input(input: u64, cache_read: u64) -> Self {
        Self {
            input,
            output: 0,
            cache_read,
            cache_write: 0,
        }
    }

    /// Whether `input + cacheRead` is above the window (CL4). A window of 0 is unknown: never.
    #[must_use]
    pub const fn exceeds(&self, context_window: u64) -> bool {
        context_window > 0 && self.input.saturating_add(self.cache_read) > context_window
    }
}

/// What kinds of content the call produced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Produced {
    /// Text that is not blank.
    pub visible_text: bool,
    /// Thinking, also redacted.
    pub thinking: bool,
    /// How many tool calls.
    pub tool_calls: u32,
    /// How many images.
    pub images: u32,
}

/// An assistant message that has ended (SPEC section 1).
///
/// ```
/// use retry_machine::{AssistantMessage, StopReason};
/// let read: AssistantMessage = serde_json::from_str(
///     r#"{"role":"assistant","stopReason":"error","errorMessage":"503 Service Unavailable","content":[]}"#,
/// ).unwrap();
/// assert_eq!(read, AssistantMessage::error("503 Service Unavailable"));
/// assert_eq!(read.stop_reason, StopReason::Error);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", from = "Wire")]
#[non_exhaustive]
pub struct AssistantMessage {
    /// Why the call ended.
    pub stop_reason: StopReason,
    /// The error's text, if the call failed.
    pub error_message: Option<String>,
    /// Tokens used, if told.
    pub usage: Option<Usage>,
    /// What was produced before the end.
    pub content: Produced,
    /// Who was called, in the host's words.
    pub provider: Option<String>,
    /// Which model.
    pub model: Option<String>,
    /// When the call began or ended, as the host has it.
    pub timestamp: Option<UnixMillis>,
}

impl AssistantMessage {
    /// A message that ended for `stop_reason`, and nothing else known.
    #[must_use]
    pub const fn new(stop_reason: StopReason) -> Self {
        Self {
            stop_reason,
            error_message: None,
            usage: None,
            content: Produced {
                visible_text: false,
                thinking: false,
                tool_calls: 0,
                images: 0,
            },
            provider: None,
            model: None,
            timestamp: None,
        }
    }

    /// A failed call with the error's text as the agent has it.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            error_message: Some(text.into()),
            ..Self::new(StopReason::Error)
        }
    }

    /// A call that ended well (`stop`).
    #[must_use]
    pub const fn success() -> Self {
        Self::new(StopReason::Stop)
    }

    /// A call that was aborted.
    #[must_use]
    pub const fn aborted() -> Self {
        Self::new(StopReason::Aborted)
    }

    /// The same with its usage.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The same with the name of the provider.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// The same with what was produced.
    #[must_use]
    pub fn with_content(mut self, content: Produced) -> Self {
        self.content = content;
        self
    }

    /// The error's text, if there is one and it is not empty (CL1).
    #[must_use]
    pub fn error_text(&self) -> Option<&str> {
        self.error_message
            .as_deref()
            .filter(|text| !text.is_empty())
    }
}

/// As agents write it; reads as the same message again. The content itself is not kept: a block stands for
/// each thing that was produced.
impl Serialize for AssistantMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", "assistant")?;
        map.serialize_entry("stopReason", &self.stop_reason)?;
        if let Some(text) = &self.error_message {
            map.serialize_entry("errorMessage", text)?;
        }
        if let Some(usage) = &self.usage {
            map.serialize_entry("usage", usage)?;
        }
        map.serialize_entry("content", &self.content)?;
        if let Some(provider) = &self.provider {
            map.serialize_entry("provider", provider)?;
        }
        if let Some(model) = &self.model {
            map.serialize_entry("model", model)?;
        }
        if let Some(timestamp) = &self.timestamp {
            map.serialize_entry("timestamp", timestamp)?;
        }
        map.end()
    }
}

impl Serialize for Produced {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Clone, Serialize)]
        #[serde(tag = "type", rename_all = "camelCase")]
        enum Written {
            Text { text: &'static str },
            Thinking,
            ToolCall,
            Image,
        }

        // What was said is not known, only that it is not blank.
        let text = self.visible_text.then_some(Written::Text { text: "…" });
        let thinking = self.thinking.then_some(Written::Thinking);
        let tool_calls = (0..self.tool_calls).map(|_| Written::ToolCall);
        let images = (0..self.images).map(|_| Written::Image);
        serializer.collect_seq(
            text.into_iter()
                .chain(thinking)
                .chain(tool_calls)
                .chain(images),
        )
    }
}

/// The message as agents write it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wire {
    #[serde(default, rename = "role")]
    pub(crate) _role: AssistantRole,
    pub(crate) stop_reason: StopReason,
    #[serde(default)]
    pub(crate) error_message: Option<LossyString>,
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    #[serde(default)]
    pub(crate) content: Produced,
    #[serde(default)]
    pub(crate) provider: Option<LossyString>,
    #[serde(default)]
    pub(crate) model: Option<LossyString>,
    #[serde(default, deserialize_with = "lenient_instant")]
    pub(crate) timestamp: Option<UnixMillis>,
}

impl From<Wire> for AssistantMessage {
    fn from(wire: Wire) -> Self {
        Self {
            stop_reason: wire.stop_reason,
            error_message: wire.error_message.map(|text| text.0),
            usage: wire.usage,
            content: wire.content,
            provider: wire.provider.map(|text| text.0),
            model: wire.model.map(|text| text.0),
            timestamp: wire.timestamp,
        }
    }
}

/// The role, which may be left out and may be nothing else.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AssistantRole {
    #[default]
    Assistant,
}

/// A text in which lone surrogates (and bytes that are no UTF-8) are read as U+FFFD.
///
/// JavaScript cuts strings between surrogates and writes the half as an escape; a strict reader would
/// lose the whole line.
///
/// ```
/// use retry_machine::LossyString;
/// let read: LossyString = serde_json::from_str(r#""cut \ud83d""#).unwrap();
/// assert_eq!(read.0, "cut \u{FFFD}");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossyString(pub String);

impl<'de> Deserialize<'de> for LossyString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = LossyString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LossyString, E> {
                Ok(LossyString(text.to_owned()))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<LossyString, E> {
                Ok(LossyString(text))
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<LossyString, E> {
                Ok(LossyString(lossy(bytes.to_vec())))
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<LossyString, E> {
                Ok(LossyString(lossy(bytes)))
            }
        }

        // A JSON reader hands strings with lone surrogates over only as bytes, in which such a half is
        // the three bytes that UTF-8 would have for it.
        deserializer.deserialize_byte_buf(Text)
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut bytes = error.into_bytes();
        for at in 0..bytes.len().saturating_sub(2) {
            if bytes[at] == 0xED && bytes[at + 1] >= 0xA0 {
                bytes[at..at + 3].copy_from_slice("\u{FFFD}".as_bytes());
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A count as agents write it: an integer, a float, null, or something below zero.
fn lenient_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(deserializer.deserialize_any(Number)?.unwrap_or(0))
}

/// Milliseconds since the epoch, or any other form of a timestamp, which says nothing here.
pub(crate) fn lenient_instant<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UnixMillis>, D::Error> {
    Ok(deserializer.deserialize_any(Number)?.map(UnixMillis))
}

struct Number;

impl<'de> Visitor<'de> for Number {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(u64::try_from(value).unwrap_or(0)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        // A cast saturates, and NaN is 0.
        Ok(Some(value as u64))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}

impl<'de> Deserialize<'de> for Produced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Content;

        impl<'de> Visitor<'de> for Content {
            type Value = Produced;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of content blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Produced, E> {
                Ok(Produced {
                    visible_text: !text.trim().is_empty(),
                    ..Produced::default()
                })
            }

            fn visit_unit<E: de::Error>(self) -> Result<Produced, E> {
                Ok(Produced::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Produced, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Produced::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Produced, A::Error> {
                let mut produced = Produced::default();
                while let Some(block) = blocks.next_element::<Block>()? {
                    match block {
                        Block::Text { visible } => produced.visible_text |= visible,
                        Block::Thinking => produced.thinking = true,
                        Block::ToolCall => produced.tool_calls += 1,
                        Block::Image => produced.images += 1,
                        Block::Other => {}
                    }
                }
                Ok(produced)
            }
        }

        deserializer.deserialize_any(Content)
    }
}

/// One content block, by the names that agents and providers give them.
enum Block {
    Text { visible: bool },
    Thinking,
    ToolCall,
    Image,
    Other,
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BlockVisitor;

        impl<'de> Visitor<'de> for BlockVisitor {
            type Value = Block;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a content block")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Block, E> {
                Ok(Block::Text {
                    visible: !text.trim().is_empty(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Block, A::Error> {
                let mut visible = false;
                let mut kind = LossyString::default();
                while let Some(key) = map.next_key::<Key>()? {
                    match key {
                        Key::Type => kind = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        Key::Text => {
                            let text = map.next_value::<Option<LossyString>>()?.unwrap_or_default();
                            visible = !text.0.trim().is_empty();
                        }
                        Key::Other => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(match kind.0.as_str() {
                    "text" | "output_text" => Block::Text { visible },
                    "thinking" | "redacted_thinking" | "reasoning" => Block::Thinking,
                    "toolCall" | "tool_use" | "tool_call" | "function_call" => Block::ToolCall,
                    "image" | "image_url" => Block::Image,
                    _ => Block::Other,
                })
            }
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        enum Key {
            Type,
            Text,
            #[serde(other)]
            Other,
        }

        deserializer.deserialize_any(BlockVisitor)
    }
}

/// The text of an error with those of its causes, for SDKs and HTTP clients whose own text leaves out what
/// happened ("error sending request"). A cause that the text already tells is not told again; at most 16 are
/// read.
///
/// ```
/// use retry_machine::{Turn, error_text};
/// # #[derive(Debug)] struct SendError(std::io::Error);
/// # impl std::fmt::Display for SendError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("error sending request") }
/// # }
/// # impl std::error::Error for SendError {
/// #     fn source(&self) -> Option<&(dyn std::error::Error + 'static)> { Some(&self.0) }
/// # }
/// # let error = SendError(std::io::ErrorKind::ConnectionReset.into());
/// // What `reqwest::Error` is like:
/// assert_eq!(error.to_string(), "error sending request");
/// assert_eq!(error_text(&error), "error sending request: connection reset");
/// let turn = Turn::failure(error_text(&error));
/// ```
#[must_use]
pub fn error_text(error: &dyn core::error::Error) -> String {
    let mut text = error.to_string();
    let causes = core::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.take(16).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
