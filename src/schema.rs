//! JSON Schemas of what people write by hand, settings and rule files, and of the lines between programs.

use serde_json::{Map, Value, json};

use crate::settings::{RetrySettings, SETTINGS, SettingKind};

/// The dialect of the schemas.
pub(crate) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of a settings file: an object with the group `retry`, other groups being somebody else's.
/// Made from [`SETTINGS`].
#[must_use]
pub fn settings() -> Value {
    json!({
        "$schema": DIALECT,
        "title": "Settings of retry-machine",
        "type": "object",
        "properties": { "retry": settings_group() },
    })
}

/// The schema of the bare group `retry`, as *settings changed* carries it.
#[must_use]
pub fn settings_group() -> Value {
    let defaults = RetrySettings::default();
    let mut root = group("Any subset of the settings.");
    for setting in SETTINGS {
        let mut at = &mut root;
        let mut path: Vec<&str> = setting.key.split('.').collect();
        let name = path.pop().unwrap_or_default();
        for part in path {
            at = properties(at)
                .entry(part)
                .or_insert_with(|| group("A group of settings."));
        }
        let mut schema = kind(setting.kind);
        if let Value::Object(schema) = &mut schema {
            schema.insert("description".to_owned(), setting.meaning.into());
            if let Ok(default) = serde_json::to_value(setting.value_in(&defaults)) {
                schema.insert("default".to_owned(), default);
            }
        }
        properties(at).insert(name.to_owned(), schema);
    }
    // One number bounds both.
    if let Some(elapsed) = properties(&mut root).get_mut("maxElapsedMs") {
        let both = kind(
            SETTINGS
                .iter()
                .find(|s| s.key.starts_with("maxElapsedMs"))
                .map_or(SettingKind::Bool, |s| s.kind),
        );
        *elapsed = json!({ "anyOf": [elapsed.take(), both] });
    }
    root
}

fn group(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": false,
        "properties": {},
    })
}

/// The properties of a group, which every group has.
fn properties(group: &mut Value) -> &mut Map<String, Value> {
    let properties = group
        .as_object_mut()
        .and_then(|group| group.get_mut("properties"))
        .and_then(Value::as_object_mut);
    match properties {
        Some(properties) => properties,
        None => unreachable!("`group` made it"),
    }
}

fn kind(kind: SettingKind) -> Value {
    match kind {
        SettingKind::Bool => json!({ "enum": [true, false, "on", "off"] }),
        SettingKind::Integer { max, nullable, .. } => {
            let types = if nullable {
                json!(["integer", "null"])
            } else {
                json!("integer")
            };
            json!({ "type": types, "minimum": 0, "maximum": max })
        }
        SettingKind::Choice(names) => json!({ "enum": names }),
    }
}

/// The schema of a rule file (TOML, which has the same shape).
#[cfg(feature = "rules")]
#[must_use]
pub fn rules() -> Value {
    schemars::schema_for!(crate::classify::loaded::WrittenFile).to_value()
}

/// The schema of the lines of `rpc`: any line, with those that are read (`LineIn`) and those that are written
/// (`LineOut`) as definitions of their own.
#[cfg(feature = "rpc")]
#[must_use]
pub fn rpc() -> Value {
    crate::rpc::schema()
}
