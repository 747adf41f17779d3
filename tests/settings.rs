//! SE1–SE3: one table from which reading, checking, writing and documents come.

use retry_machine::{
    ErrorClass, EventForm, RetrySettings, SETTINGS, ServerDelay, SettingKind, SettingsErrorKind,
    SettingsPatch,
};
use serde_json::{Value, json};

fn read(json: &Value) -> Result<RetrySettings, String> {
    serde_json::from_value(json.clone()).map_err(|error| error.to_string())
}

/// A value of the tree at a dotted path.
fn nested(key: &str, value: Value) -> Value {
    key.rsplit('.')
        .fold(value, |value, name| json!({ name: value }))
}

/// Each setting: what it takes at the borders of its range, what it refuses, and that it is written back.
#[test]
fn se1_se3_every_setting() {
    for setting in SETTINGS {
        let key = setting.key;
        let (good, bad) = match setting.kind {
            SettingKind::Bool => (
                vec![json!(true), json!(false)],
                vec![json!(1), json!("yes"), json!(null), json!([])],
            ),
            SettingKind::Integer { max, nullable, .. } => {
                let mut good = vec![json!(0), json!(max)];
                let mut bad = vec![
                    json!(max + 1),
                    json!(-1),
                    json!(1.5),
                    json!("3"),
                    json!(true),
                    json!({}),
                    json!([1]),
                ];
                if nullable { &mut good } else { &mut bad }.push(json!(null));
                (good, bad)
            }
            SettingKind::Choice(names) => (
                names.iter().map(|name| json!(name)).collect(),
                vec![json!("maybe"), json!(true), json!(null)],
            ),
        };
        for value in good {
            let settings = read(&nested(key, value.clone()))
                .unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
            assert_eq!(json!(setting.value_in(&settings)), value, "{key}");
            let written = serde_json::to_value(&settings).expect("written");
            assert_eq!(read(&written), Ok(settings), "{key} = {value} is read back");
        }
        for value in bad {
            let error = read(&nested(key, value.clone())).expect_err(key);
            assert!(error.starts_with(&format!("retry.{key}: ")), "{error}");
            assert!(error.contains("expected "), "{error}");
        }
    }
}

#[test]
fn se3_errors_name_key_value_and_range() {
    for (json, text) in [
        (
            json!({"maxRetries": 1001}),
            "retry.maxRetries: 1001 is out of range; expected an integer from 0 to 1000",
        ),
        (
            json!({"baseDelayMs": 86_400_001}),
            "retry.baseDelayMs: 86400001 is out of range; expected an integer from 0 to 86400000",
        ),
        (
            json!({"enabled": "maybe"}),
            "retry.enabled: \"maybe\" is not right; expected true or false",
        ),
        (
            json!({"maxRetry": 3}),
            "retry.maxRetry: unknown key; did you mean `maxRetries`?",
        ),
        (
            json!({"delay": {"jitters": true}}),
            "retry.delay.jitters: unknown key; did you mean `jitter`?",
        ),
        (
            json!({"delay": {"serverDelay": "obey"}}),
            "retry.delay.serverDelay: \"obey\" is not right; expected \"ignore\" or \"honour\"",
        ),
        (
            json!({"classes": {"overload": {}}}),
            "retry.classes.overload: unknown key; did you mean `overloaded`?",
        ),
        (
            json!({"classes": {"auth": {"maxRetries": 1}}}),
            "retry.classes.auth: unknown key; expected one of `overloaded`, `rate_limit`, `server_error`, `network`, `usage_limit`",
        ),
        (
            json!({"delay": 5}),
            "retry.delay: 5 is not right; expected an object with settings",
        ),
    ] {
        assert_eq!(read(&json), Err(text.to_owned()));
    }
    let error = RetrySettings::builder()
        .base_delay_ms(u64::MAX)
        .build()
        .expect_err("out of range");
    assert_eq!(error.kind(), SettingsErrorKind::InvalidValue);
    let error = RetrySettings::builder()
        .set("delay.jiter", true)
        .build()
        .expect_err("no such key");
    assert_eq!(error.kind(), SettingsErrorKind::UnknownKey);
}

/// Any subset; on and off for switches; one number for both spans of `maxElapsedMs`.
#[test]
fn short_forms() {
    let settings = read(&json!({"delay": {"jitter": "on"}, "maxElapsedMs": 60_000})).expect("read");
    assert!(settings.jitter());
    assert_eq!(
        (
            settings.max_chain_elapsed_ms(),
            settings.max_prompt_elapsed_ms()
        ),
        (Some(60_000), Some(60_000))
    );
    assert_eq!(
        read(&json!({"maxElapsedMs": null})),
        Ok(RetrySettings::default())
    );
    assert_eq!(read(&json!({})), Ok(RetrySettings::default()));
}

/// A change names some values and leaves the others.
#[test]
fn patches() {
    let patch: SettingsPatch =
        serde_json::from_value(json!({"delay": {"serverDelay": "honour"}, "maxRetries": 9}))
            .expect("read");
    assert!(
        patch.names("maxRetries") && patch.names("delay.serverDelay") && !patch.names("enabled")
    );
    let mut settings = RetrySettings::builder()
        .base_delay_ms(7)
        .build()
        .expect("in range");
    settings.apply(&patch);
    assert_eq!(
        (
            settings.max_retries(),
            settings.base_delay_ms(),
            settings.server_delay()
        ),
        (9, 7, ServerDelay::Honour)
    );
    let mut settings = RetrySettings::default();
    settings.apply(&SettingsPatch::recommended());
    assert_eq!(settings, RetrySettings::recommended());
    assert!(SettingsPatch::default().is_empty());
}

/// Each class has its own values, else the common ones; those of others are left alone.
#[test]
fn values_of_classes() {
    let settings = read(&json!({
        "maxRetries": 4, "baseDelayMs": 100, "delay": {"maxBackoffMs": 900},
        "classes": {"overloaded": {"maxRetries": 8, "baseDelayMs": 5}, "network": {"maxBackoffMs": 1}},
    }))
    .expect("read");
    let values = |class| {
        (
            settings.max_retries_for(class),
            settings.base_delay_ms_for(class),
            settings.max_backoff_ms_for(class),
        )
    };
    assert_eq!(values(ErrorClass::Overloaded), (8, 5, Some(900)));
    assert_eq!(values(ErrorClass::Network), (4, 100, Some(1)));
    assert_eq!(values(ErrorClass::RateLimit), (4, 100, Some(900)));
    assert_eq!(settings.events(), EventForm::Documented);
}

/// Wherever the recommended value is another than the default there is a reason, and only there.
#[test]
fn recommended_values_have_reasons() {
    let (default, recommended) = (RetrySettings::default(), RetrySettings::recommended());
    for setting in SETTINGS {
        let differs = setting.value_in(&default) != setting.value_in(&recommended);
        assert_eq!(differs, !setting.reason.is_empty(), "{}", setting.key);
        assert!(setting.meaning.ends_with('.'), "{}", setting.key);
    }
}
