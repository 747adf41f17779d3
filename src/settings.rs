//! The settings of the policy: one table from which reading, checking, writing and documents come.
//!
//! Settings cannot be invalid: every way in ([`RetrySettings::builder`], serde) checks each value against
//! [`SETTINGS`] and refuses it with the key, the value and the range (SE3). Deliberately absent: files,
//! environment variables and saving, which are the host's affair (SE2).

use core::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The policy's settings; [`Default`] is the documented policy (SE1).
///
/// ```
/// use retry_machine::RetrySettings;
/// let settings = RetrySettings::builder().max_retries(5).base_delay_ms(500).build().unwrap();
/// assert_eq!((settings.enabled(), settings.max_retries()), (true, 5));
///
/// let error = RetrySettings::builder().max_retries(5000).build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "retry.maxRetries: 5000 is out of range; expected an integer from 0 to 1000",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    enabled: bool,
    max_retries: u32,
    base_delay_ms: u64,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 3,
            base_delay_ms: 2000,
        }
    }
}

impl RetrySettings {
    /// Starts from the defaults.
    #[must_use]
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// Whether failures are retried at all (`retry.enabled`).
    #[must_use]
    pub const fn enabled(&self) -> bool {
        self.enabled
    }

    /// Retries per chain (`retry.maxRetries`).
    #[must_use]
    pub const fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// The first delay of the local ladder, in milliseconds (`retry.baseDelayMs`).
    #[must_use]
    pub const fn base_delay_ms(&self) -> u64 {
        self.base_delay_ms
    }

    /// Takes over the values that `patch` names and keeps the rest.
    pub fn apply(&mut self, patch: &SettingsPatch) {
        for &(index, value) in &patch.values {
            (SETTINGS[index].set)(self, value);
        }
    }
}

/// One value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the kinds of values that settings have.
pub enum SettingValue {
    /// `true` or `false`.
    Bool(bool),
    /// A count or milliseconds.
    Integer(u64),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => fmt::Display::fmt(value, f),
            Self::Integer(value) => fmt::Display::fmt(value, f),
        }
    }
}

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the kinds of settings there are.
pub enum SettingKind {
    /// `true` or `false`.
    Bool,
    /// An integer from 0 to `max`, in `unit`.
    Integer {
        /// The largest value allowed.
        max: u64,
        /// `ms`, or empty for a count.
        unit: &'static str,
    },
}

impl SettingKind {
    fn check(self, value: SettingValue) -> Result<(), String> {
        match (self, value) {
            (Self::Bool, SettingValue::Bool(_)) => Ok(()),
            (Self::Integer { max, .. }, SettingValue::Integer(value)) if value <= max => Ok(()),
            (Self::Integer { .. }, SettingValue::Integer(value)) => {
                Err(format!("{value} is out of range; expected {self}"))
            }
            (Self::Bool, SettingValue::Integer(_)) | (Self::Integer { .. }, SettingValue::Bool(_)) => {
                Err(format!("{value} has the wrong type; expected {self}"))
            }
        }
    }
}

/// The range, as error messages and documents state it.
impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Integer { max, .. } => write!(f, "an integer from 0 to {max}"),
        }
    }
}

/// One row of [`SETTINGS`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The key below `retry`, dots between groups.
    pub key: &'static str,
    /// What values it takes.
    pub kind: SettingKind,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    get: fn(&RetrySettings) -> SettingValue,
    set: fn(&mut RetrySettings, SettingValue),
}

impl Setting {
    /// The value of this setting in `settings`.
    #[must_use]
    pub fn value_in(&self, settings: &RetrySettings) -> SettingValue {
        (self.get)(settings)
    }
}

/// A row of the table: the key, the field, and how a checked value becomes the field's type.
macro_rules! setting {
    ($key:literal, $field:ident: $variant:ident as $type:ty, $kind:expr, $meaning:literal) => {
        Setting {
            key: $key,
            kind: $kind,
            meaning: $meaning,
            get: |settings| SettingValue::$variant(settings.$field.into()),
            set: |settings, value| {
                // Values are checked against `kind` before they come here, so both always hold.
                if let SettingValue::$variant(value) = value
                    && let Ok(value) = <$type>::try_from(value)
                {
                    settings.$field = value;
                }
            },
        }
    };
}

/// Every setting: the key tree, the ranges and the meaning (SE1).
pub const SETTINGS: &[Setting] = &[
    setting!(
        "enabled",
        enabled: Bool as bool,
        SettingKind::Bool,
        "Whether failures are retried at all."
    ),
    setting!(
        "maxRetries",
        max_retries: Integer as u32,
        SettingKind::Integer { max: 1000, unit: "" },
        "Retries per chain; 0 reports a failure without retrying it."
    ),
    setting!(
        "baseDelayMs",
        base_delay_ms: Integer as u64,
        SettingKind::Integer { max: 86_400_000, unit: "ms" },
        "The first delay; each further attempt doubles it."
    ),
];

/// Some settings, checked: what *settings changed* carries (SPEC section 2: any subset).
///
/// Read it with serde from the bare group (`{"maxRetries": 5}`), or build it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsPatch {
    // Indices into SETTINGS, each with a value of its kind and range.
    values: Vec<(usize, SettingValue)>,
}

impl SettingsPatch {
    /// Starts empty.
    #[must_use]
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// The patch of one setting, for the toggle `set_auto_retry_enabled` (SE2).
    #[must_use]
    pub fn enabled(enabled: bool) -> Self {
        let mut patch = Self::default();
        // The row exists and takes every bool.
        let _ = patch.put("enabled", SettingValue::Bool(enabled));
        patch
    }

    /// Whether it names the setting with this key.
    #[must_use]
    pub fn names(&self, key: &str) -> bool {
        self.values.iter().any(|&(index, _)| SETTINGS[index].key == key)
    }

    /// Whether it names no setting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn put(&mut self, key: &str, value: SettingValue) -> Result<(), SettingsError> {
        let Some(index) = SETTINGS.iter().position(|setting| setting.key == key) else {
            return Err(SettingsError::unknown_key(key, SETTINGS.iter().map(|s| s.key)));
        };
        SETTINGS[index]
            .kind
            .check(value)
            .map_err(|why| SettingsError::invalid(key, &why))?;
        self.values.retain(|&(other, _)| other != index);
        self.values.push((index, value));
        Ok(())
    }
}

/// Collects values; each is checked when it is built (SE3).
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SettingsBuilder {
    values: Vec<(&'static str, SettingValue)>,
}

impl SettingsBuilder {
    /// `retry.enabled`.
    pub fn enabled(self, enabled: bool) -> Self {
        self.with("enabled", SettingValue::Bool(enabled))
    }

    /// `retry.maxRetries`, 0–1,000.
    pub fn max_retries(self, retries: u32) -> Self {
        self.with("maxRetries", SettingValue::Integer(retries.into()))
    }

    /// `retry.baseDelayMs`, 0–86,400,000 milliseconds.
    pub fn base_delay_ms(self, delay_ms: u64) -> Self {
        self.with("baseDelayMs", SettingValue::Integer(delay_ms))
    }

    fn with(mut self, key: &'static str, value: SettingValue) -> Self {
        self.values.push((key, value));
        self
    }

    /// The values named so far, as a change of settings.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn patch(self) -> Result<SettingsPatch, SettingsError> {
        let mut patch = SettingsPatch::default();
        for (key, value) in self.values {
            patch.put(key, value)?;
        }
        Ok(patch)
    }

    /// The defaults with the values named so far.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn build(self) -> Result<RetrySettings, SettingsError> {
        let mut settings = RetrySettings::default();
        settings.apply(&self.patch()?);
        Ok(settings)
    }
}

/// Settings were refused: the text names the key, the value and what would be right (SE3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    kind: SettingsErrorKind,
    text: String,
}

/// Why settings were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsErrorKind {
    /// The group has no such key.
    UnknownKey,
    /// The value is of the wrong type or out of range.
    InvalidValue,
}

impl SettingsError {
    fn unknown_key(key: &str, known: impl Iterator<Item = &'static str> + Clone) -> Self {
        let hint = match nearest(last_segment(key), known.clone().map(last_segment)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                let names: Vec<_> = known.map(|name| format!("`{}`", last_segment(name))).collect();
                format!("expected one of {}", names.join(", "))
            }
        };
        Self {
            kind: SettingsErrorKind::UnknownKey,
            text: format!("retry.{key}: unknown key; {hint}"),
        }
    }

    fn invalid(key: &str, why: &str) -> Self {
        Self {
            kind: SettingsErrorKind::InvalidValue,
            text: format!("retry.{key}: {why}"),
        }
    }

    /// Why they were refused.
    #[must_use]
    pub const fn kind(&self) -> SettingsErrorKind {
        self.kind
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SettingsError {}

fn last_segment(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// The known name that `name` was probably meant to be, if one is close.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| {
            let likeness =
                strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase());
            (candidate, likeness)
        })
        .filter(|&(_, likeness)| likeness >= 0.8)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(candidate, _)| candidate)
}

/// The whole tree, as the group `retry` of a settings file.
impl Serialize for RetrySettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for setting in SETTINGS {
            match setting.value_in(self) {
                SettingValue::Bool(value) => map.serialize_entry(setting.key, &value)?,
                SettingValue::Integer(value) => map.serialize_entry(setting.key, &value)?,
            }
        }
        map.end()
    }
}

/// The defaults with the values of the group; unknown keys and invalid values are refused (SE3).
impl<'de> de::Deserialize<'de> for RetrySettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Self::default();
        settings.apply(&SettingsPatch::deserialize(deserializer)?);
        Ok(settings)
    }
}

impl<'de> de::Deserialize<'de> for SettingsPatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Group(SettingsPatch);

        impl<'de> Visitor<'de> for Group {
            type Value = SettingsPatch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with settings of the group `retry`")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
                while let Some(key) = map.next_key::<String>()? {
                    let Some(index) = SETTINGS.iter().position(|setting| setting.key == key) else {
                        let keys = SETTINGS.iter().map(|setting| setting.key);
                        return Err(de::Error::custom(SettingsError::unknown_key(&key, keys)));
                    };
                    let value = map.next_value_seed(OneValue(index))?;
                    self.0.put(&key, value).map_err(de::Error::custom)?;
                }
                Ok(self.0)
            }
        }

        deserializer.deserialize_map(Group(Self::default()))
    }
}

/// Reads one value and refuses the wrong type with the key and the range.
struct OneValue(usize);

impl OneValue {
    fn refuse<E: de::Error>(&self, what: impl fmt::Display) -> E {
        let setting = &SETTINGS[self.0];
        let why = match setting.kind {
            SettingKind::Bool => format!("{what} has the wrong type; expected {}", setting.kind),
            SettingKind::Integer { .. } => format!("{what} is not right; expected {}", setting.kind),
        };
        E::custom(SettingsError::invalid(setting.key, &why))
    }
}

impl<'de> DeserializeSeed<'de> for OneValue {
    type Value = SettingValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OneValue {
    type Value = SettingValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&SETTINGS[self.0].kind, f)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(SettingValue::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(SettingValue::Integer(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        match u64::try_from(value) {
            Ok(value) => Ok(SettingValue::Integer(value)),
            Err(_) => Err(self.refuse(value)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Err(self.refuse(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Err(self.refuse(format_args!("{value:?}")))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Err(self.refuse("null"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(self.refuse("an object"))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(self.refuse("a list"))
    }
}
