//! Errors as JSON objects a line, for `--batch` and `--corpus`: one reader.

use retry_machine::{ErrorClass, ErrorFacts, LossyString};
use serde::Deserialize;
use serde_json::Value;

/// One error with what is known about it. Keys that are not named here are ignored; null means absent.
#[derive(Debug, Deserialize)]
pub struct Row {
    #[serde(default)]
    pub id: Value,
    message: Option<LossyString>,
    #[serde(default)]
    status: Value,
    #[serde(default)]
    provider: Value,
    #[serde(default)]
    code: Value,
    #[serde(default)]
    headers: Value,
    #[serde(default, rename = "nowMs")]
    now_ms: Value,
    /// The right class, and others that count, in a labelled file.
    #[serde(default)]
    class: Value,
    #[serde(default)]
    also: Value,
}

/// Reads a row; what cannot be read comes back with its id, if that can.
pub fn parse(line: &[u8]) -> Result<Row, (Value, String)> {
    #[derive(Deserialize)]
    struct Id {
        #[serde(default)]
        id: Value,
    }

    if line.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err((Value::Null, "not a JSON object".to_owned()));
    }
    serde_json::from_slice(line).map_err(|error| {
        let id = serde_json::from_slice::<Id>(line).map_or(Value::Null, |row| row.id);
        (id, error.to_string().replace(" line 1 column", " column"))
    })
}

impl Row {
    /// The error's text.
    pub fn message(&self) -> Result<&str, String> {
        match &self.message {
            Some(text) => Ok(&text.0),
            None => Err("no `message`".to_owned()),
        }
    }

    /// The instant that hints are measured against, if the row has one.
    pub fn now_ms(&self) -> Result<Option<u64>, String> {
        match &self.now_ms {
            Value::Null => Ok(None),
            value => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| format!("`nowMs`: {value} is not a number of milliseconds")),
        }
    }

    /// The right class first, then what else counts.
    pub fn labels(&self) -> Result<Vec<ErrorClass>, String> {
        let also = match &self.also {
            Value::Null => &[],
            Value::Array(also) => also.as_slice(),
            other => return Err(format!("`also`: {} is not a list", kind(other))),
        };
        std::iter::once(&self.class)
            .filter(|class| !class.is_null())
            .chain(also)
            .map(|label| {
                let name = label
                    .as_str()
                    .ok_or_else(|| format!("a class that is {}", kind(label)))?;
                ErrorClass::ALL
                    .into_iter()
                    .find(|class| class.name() == name)
                    .ok_or_else(|| format!("unknown class `{name}`"))
            })
            .collect()
    }

    /// What is known beside the text.
    pub fn facts(&self) -> Result<ErrorFacts<'_>, String> {
        let mut facts = ErrorFacts::new();
        match &self.status {
            Value::Null => {}
            value => facts = facts.status(status(value)?),
        }
        match &self.code {
            Value::Null => {}
            Value::String(code) => facts = facts.code(code.as_str()),
            Value::Number(code) => facts = facts.code(code.to_string()),
            other => return Err(format!("`code`: {} is not a string", kind(other))),
        }
        match &self.provider {
            Value::Null => {}
            Value::String(provider) => facts = facts.provider(provider.as_str()),
            other => return Err(format!("`provider`: {} is not a string", kind(other))),
        }
        for (name, value) in headers(&self.headers)? {
            facts = facts.header(name, value);
        }
        Ok(facts)
    }
}

fn status(value: &Value) -> Result<u16, String> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|status| (100..=999).contains(status))
        .ok_or_else(|| format!("`status`: {value} is not an HTTP status, 100 to 999"))
}

/// Headers as an object (values: strings, numbers, lists of strings) or as a list of pairs.
fn headers(value: &Value) -> Result<Vec<(&str, String)>, String> {
    let text = |name: &str, value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!(
            "`headers`: the value of `{name}` is {}",
            kind(other)
        )),
    };
    let mut headers = Vec::new();
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::Null => {}
                    Value::Array(values) => {
                        for value in values {
                            headers.push((name.as_str(), text(name, value)?));
                        }
                    }
                    value => headers.push((name.as_str(), text(name, value)?)),
                }
            }
        }
        Value::Array(pairs) => {
            for pair in pairs {
                match pair.as_array().map(Vec::as_slice) {
                    Some([Value::String(name), value]) => {
                        headers.push((name.as_str(), text(name, value)?))
                    }
                    _ => return Err("`headers`: expected pairs of name and value".to_owned()),
                }
            }
        }
        other => return Err(format!("`headers`: {} is not an object", kind(other))),
    }
    Ok(headers)
}

/// What a JSON value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
