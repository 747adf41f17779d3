//! The JSON Schema of the lines: those in from the tables that read them, those out from what a client reads.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::line::LineOut;
use super::{COMMANDS, Hello, MAX_SESSION_NAME_BYTES, RetryState};
use crate::message::StopReason;
use crate::schema::{DIALECT, settings_group};
use crate::wire::{self, Dialect};

/// An id: comes back as it was written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the shape of a raw value")]
pub(super) enum Id {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
}

/// The data of a response.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the shape of a raw value")]
pub(super) enum Told {
    /// Of `get_state`.
    State(RetryState),
    /// Of `hello`.
    Hello(Hello),
}

/// An assistant message, as agents have it; further keys do no harm.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape of what a lenient reader takes")]
struct Message {
    /// `assistant`, if it is told.
    #[schemars(extend("const" = "assistant"))]
    role: Option<String>,
    /// Why the call ended.
    stop_reason: StopReason,
    /// The error's text, if the call failed.
    error_message: Option<String>,
    /// Tokens used, if told.
    usage: Option<Usage>,
    /// A text, or content blocks by their `type`.
    content: Option<Value>,
    /// Who was called.
    provider: Option<String>,
    /// Which model.
    model: Option<String>,
    /// When the call began or ended: milliseconds since the epoch; other forms say nothing.
    timestamp: Option<Value>,
}

/// Tokens used; what is missing or below zero is 0.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape of what a lenient reader takes")]
struct Usage {
    /// Uncached input tokens.
    input: Option<f64>,
    /// Output tokens.
    output: Option<f64>,
    /// Input tokens read from a cache.
    cache_read: Option<f64>,
    /// Input tokens written to a cache.
    cache_write: Option<f64>,
}

/// One schema for all lines, with `LineIn` and `LineOut` as definitions of their own.
pub(crate) fn schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let line_out = generator.subschema_for::<LineOut>();
    let shapes = Shapes {
        id: generator.subschema_for::<Option<Id>>().to_value(),
        message: generator.subschema_for::<Message>().to_value(),
    };
    let commands = COMMANDS
        .iter()
        .map(|row| shapes.line("type", row.name, Some(row.meaning), &[row.keys]));
    let inputs = Dialect::Rpc.inputs().map(|name| {
        shapes.line(
            "input",
            name,
            None,
            &[&["session", "nowMs", "entropy"], wire::keys_of(name)],
        )
    });
    let mut definitions = generator.take_definitions(true);
    definitions.insert(
        "LineIn".to_owned(),
        json!({
            "description": "A line that the process reads: a command or a machine input.",
            "oneOf": commands.chain(inputs).collect::<Vec<_>>(),
        }),
    );
    definitions.insert("Settings".to_owned(), settings_group());
    json!({
        "$schema": DIALECT,
        "title": "Lines of retry-machine rpc",
        "anyOf": [{ "$ref": "#/$defs/LineIn" }, line_out],
        "$defs": definitions,
    })
}

/// The schemas of keys that are derived.
struct Shapes {
    id: Value,
    message: Value,
}

impl Shapes {
    /// A line of the kind that `tag` tells, with these keys.
    fn line(&self, tag: &str, name: &str, meaning: Option<&str>, keys: &[&[&str]]) -> Value {
        let mut properties = Map::new();
        let mut required = vec![tag.to_owned()];
        properties.insert(tag.to_owned(), json!({ "const": name }));
        properties.insert("id".to_owned(), self.id.clone());
        for key in keys.concat() {
            let (schema, needed) = self.key(key);
            properties.insert(key.to_owned(), schema);
            if needed {
                required.push(key.to_owned());
            }
        }
        let mut line = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        if let (Some(meaning), Some(line)) = (meaning, line.as_object_mut()) {
            line.insert("description".to_owned(), meaning.into());
        }
        line
    }

    /// The schema of a key, and whether a line that has it cannot be without it.
    fn key(&self, key: &str) -> (Value, bool) {
        let count = |meaning: &str| json!({ "type": ["integer", "null"], "minimum": 0, "description": meaning });
        match key {
            "session" => (
                json!({
                    "type": ["string", "null"],
                    "minLength": 1,
                    "maxLength": MAX_SESSION_NAME_BYTES,
                    "description": "Whom the line is for; the unnamed session without it.",
                }),
                false,
            ),
            "enabled" => (json!({ "type": "boolean" }), true),
            "settings" => (json!({ "$ref": "#/$defs/Settings" }), true),
            "message" => (self.message.clone(), true),
            "contextWindow" => (
                count("The model's context window in tokens; 0 is unknown."),
                false,
            ),
            "switched" => (
                json!({ "type": "boolean", "description": "Whether another credential took over." }),
                true,
            ),
            "request" => (
                count("That of the effect `switchCredential`; the latest one without it."),
                false,
            ),
            "run" => (
                count("That of the effect `continueAgent`; the latest one without it."),
                false,
            ),
            "error" => (
                json!({ "type": ["string", "null"], "description": "Why the agent could not continue." }),
                false,
            ),
            "nowMs" => (
                count(
                    "Wall time in milliseconds since the epoch, for a server's instants; that of the process without it.",
                ),
                false,
            ),
            "entropy" => (
                json!({
                    "type": ["integer", "null"],
                    "minimum": 0,
                    "maximum": wire::MAX_ENTROPY,
                    "description": "Random bits for jitter; those of the process without it.",
                }),
                false,
            ),
            // A new key of the tables must say here what it is; until then it is anything.
            _ => (json!(true), false),
        }
    }
}
