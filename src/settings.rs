//! The settings of the policy: one table from which reading, checking, writing and documents come.
//!
//! Settings cannot be invalid: every way in ([`RetrySettings::builder`], serde) checks each value against
//! [`SETTINGS`] and refuses it with the key, the value and the range (SE3). Deliberately absent: files,
//! environment variables and saving, which are the host's affair (SE2).

use core::fmt;

use crate::classify::ErrorClass;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The policy's settings; [`Default`] is the documented policy (SE1), [`recommended`](Self::recommended) is ours.
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
    max_total_retries: Option<u32>,
    max_chain_elapsed_ms: Option<u64>,
    max_prompt_elapsed_ms: Option<u64>,
    max_backoff_ms: Option<u64>,
    jitter: bool,
    server_delay: ServerDelay,
    max_server_delay_ms: Option<u64>,
    wait_for_reset: bool,
    max_reset_wait_ms: u64,
    reset_margin_ms: u64,
    min_transport_delay_ms: u64,
    classes: [ClassSettings; RETRIED.len()],
    events: EventForm,
}

/// What a server's delay does (US2, HI2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerDelay {
    /// Nothing: the documented policy.
    #[default]
    Ignore,
    /// The wait is never shorter.
    Honour,
}

/// Which fields events have on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventForm {
    /// Those of the documents (EV1, EV2).
    #[default]
    Documented,
    /// Also chain, class, rule, next instant, total and reason.
    Extended,
}

/// The classes that can be retried, each with settings of its own.
const RETRIED: [ErrorClass; 5] = [
    ErrorClass::Overloaded,
    ErrorClass::RateLimit,
    ErrorClass::ServerError,
    ErrorClass::Network,
    ErrorClass::UsageLimit,
];

/// What one class has instead of the common values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassSettings {
    max_retries: Option<u32>,
    base_delay_ms: Option<u64>,
    max_backoff_ms: Option<u64>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 3,
            base_delay_ms: 2000,
            max_total_retries: None,
            max_chain_elapsed_ms: None,
            max_prompt_elapsed_ms: None,
            max_backoff_ms: None,
            jitter: false,
            server_delay: ServerDelay::Ignore,
            max_server_delay_ms: None,
            wait_for_reset: false,
            max_reset_wait_ms: 6 * HOUR_MS,
            reset_margin_ms: 5000,
            min_transport_delay_ms: 0,
            classes: [ClassSettings::default(); RETRIED.len()],
            events: EventForm::Documented,
        }
    }
}

const HOUR_MS: u64 = 3_600_000;

impl RetrySettings {
    /// Starts from the defaults.
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// Our own policy. The README has each value with its reason.
    #[must_use]
    pub fn recommended() -> Self {
        let mut settings = Self {
            max_retries: 6,
            base_delay_ms: 1000,
            max_total_retries: Some(20),
            max_chain_elapsed_ms: Some(600_000),
            max_prompt_elapsed_ms: Some(HOUR_MS),
            max_backoff_ms: Some(30_000),
            jitter: true,
            server_delay: ServerDelay::Honour,
            max_server_delay_ms: Some(300_000),
            min_transport_delay_ms: 500,
            ..Self::default()
        };
        settings.classes[0].max_retries = Some(8);
        settings.classes[2].max_retries = Some(3);
        settings
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

    /// Retries per prompt, whatever happens in it (`retry.maxTotalRetries`).
    #[must_use]
    pub const fn max_total_retries(&self) -> Option<u32> {
        self.max_total_retries
    }

    /// How long a chain may last, in milliseconds (`retry.maxElapsedMs.chain`).
    #[must_use]
    pub const fn max_chain_elapsed_ms(&self) -> Option<u64> {
        self.max_chain_elapsed_ms
    }

    /// Until when after its start a prompt may retry, in milliseconds (`retry.maxElapsedMs.prompt`).
    #[must_use]
    pub const fn max_prompt_elapsed_ms(&self) -> Option<u64> {
        self.max_prompt_elapsed_ms
    }

    /// Whether delays are spread (`retry.delay.jitter`).
    #[must_use]
    pub const fn jitter(&self) -> bool {
        self.jitter
    }

    /// What a server's delay does (`retry.delay.serverDelay`).
    #[must_use]
    pub const fn server_delay(&self) -> ServerDelay {
        self.server_delay
    }

    /// The longest server's delay that is waited out, in milliseconds (`retry.delay.maxServerDelayMs`).
    #[must_use]
    pub const fn max_server_delay_ms(&self) -> Option<u64> {
        self.max_server_delay_ms
    }

    /// The longest wait for a reset in milliseconds, if resets are waited for at all
    /// (`retry.delay.waitForReset`, `retry.delay.maxResetWaitMs`).
    #[must_use]
    pub const fn longest_reset_wait_ms(&self) -> Option<u64> {
        if self.wait_for_reset {
            Some(self.max_reset_wait_ms)
        } else {
            None
        }
    }

    /// What is waited after a reset on top, in milliseconds (`retry.delay.resetMarginMs`).
    #[must_use]
    pub const fn reset_margin_ms(&self) -> u64 {
        self.reset_margin_ms
    }

    /// The shortest wait after a failure of the network, in milliseconds
    /// (`retry.delay.minTransportDelayMs`).
    #[must_use]
    pub const fn min_transport_delay_ms(&self) -> u64 {
        self.min_transport_delay_ms
    }

    /// Which fields events have on the wire (`retry.events`).
    #[must_use]
    pub const fn events(&self) -> EventForm {
        self.events
    }

    /// Retries per chain for a failure of this class: its own, else the common number.
    #[must_use]
    pub fn max_retries_for(&self, class: ErrorClass) -> u32 {
        self.own(class).max_retries.unwrap_or(self.max_retries)
    }

    /// The first delay of the ladder for this class, in milliseconds.
    #[must_use]
    pub fn base_delay_ms_for(&self, class: ErrorClass) -> u64 {
        self.own(class).base_delay_ms.unwrap_or(self.base_delay_ms)
    }

    /// The cap of the ladder for this class, in milliseconds.
    #[must_use]
    pub fn max_backoff_ms_for(&self, class: ErrorClass) -> Option<u64> {
        self.own(class).max_backoff_ms.or(self.max_backoff_ms)
    }

    /// What the class has of its own: the places are those of [`RETRIED`].
    fn own(&self, class: ErrorClass) -> ClassSettings {
        match class {
            ErrorClass::Overloaded => self.classes[0],
            ErrorClass::RateLimit => self.classes[1],
            ErrorClass::ServerError => self.classes[2],
            ErrorClass::Network => self.classes[3],
            ErrorClass::UsageLimit => self.classes[4],
            ErrorClass::Overflow
            | ErrorClass::Auth
            | ErrorClass::Billing
            | ErrorClass::InvalidRequest
            | ErrorClass::ContentFilter
            | ErrorClass::Aborted
            | ErrorClass::OtherFatal
            | ErrorClass::Unknown => ClassSettings::default(),
        }
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
    /// `null`: no bound, or no value of its own.
    Unset,
    /// `true` or `false`.
    Bool(bool),
    /// A count or milliseconds.
    Integer(u64),
    /// One of several names.
    Choice(&'static str),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("null"),
            Self::Bool(value) => fmt::Display::fmt(value, f),
            Self::Integer(value) => fmt::Display::fmt(value, f),
            Self::Choice(name) => fmt::Display::fmt(name, f),
        }
    }
}

impl Serialize for SettingValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unset => serializer.serialize_none(),
            Self::Bool(value) => value.serialize(serializer),
            Self::Integer(value) => value.serialize(serializer),
            Self::Choice(name) => name.serialize(serializer),
        }
    }
}

impl From<bool> for SettingValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u32> for SettingValue {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u64> for SettingValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for SettingValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unset, Into::into)
    }
}

impl From<ServerDelay> for SettingValue {
    fn from(value: ServerDelay) -> Self {
        Self::Choice(match value {
            ServerDelay::Ignore => "ignore",
            ServerDelay::Honour => "honour",
        })
    }
}

impl From<EventForm> for SettingValue {
    fn from(value: EventForm) -> Self {
        Self::Choice(match value {
            EventForm::Documented => "documented",
            EventForm::Extended => "extended",
        })
    }
}

/// From a checked value to the type of its field.
trait Field: Sized {
    fn of(value: SettingValue) -> Option<Self>;
}

impl Field for bool {
    fn of(value: SettingValue) -> Option<Self> {
        match value {
            SettingValue::Bool(value) => Some(value),
            SettingValue::Unset | SettingValue::Integer(_) | SettingValue::Choice(_) => None,
        }
    }
}

impl Field for u64 {
    fn of(value: SettingValue) -> Option<Self> {
        match value {
            SettingValue::Integer(value) => Some(value),
            SettingValue::Unset | SettingValue::Bool(_) | SettingValue::Choice(_) => None,
        }
    }
}

impl Field for u32 {
    fn of(value: SettingValue) -> Option<Self> {
        u64::of(value)?.try_into().ok()
    }
}

impl<T: Field> Field for Option<T> {
    fn of(value: SettingValue) -> Option<Self> {
        if value == SettingValue::Unset {
            Some(None)
        } else {
            T::of(value).map(Some)
        }
    }
}

impl Field for ServerDelay {
    fn of(value: SettingValue) -> Option<Self> {
        [Self::Ignore, Self::Honour]
            .into_iter()
            .find(|known| SettingValue::from(*known) == value)
    }
}

impl Field for EventForm {
    fn of(value: SettingValue) -> Option<Self> {
        [Self::Documented, Self::Extended]
            .into_iter()
            .find(|known| SettingValue::from(*known) == value)
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
        /// Whether `null` is allowed.
        nullable: bool,
    },
    /// One of these names.
    Choice(&'static [&'static str]),
}

impl SettingKind {
    fn check(self, value: SettingValue) -> Result<(), String> {
        match (self, value) {
            (Self::Bool, SettingValue::Bool(_))
            | (Self::Integer { nullable: true, .. }, SettingValue::Unset) => Ok(()),
            (Self::Integer { max, .. }, SettingValue::Integer(value)) if value <= max => Ok(()),
            (Self::Integer { .. }, SettingValue::Integer(value)) => {
                Err(format!("{value} is out of range; expected {self}"))
            }
            (Self::Choice(names), SettingValue::Choice(name)) if names.contains(&name) => Ok(()),
            (Self::Bool | Self::Integer { .. } | Self::Choice(_), _) => {
                Err(format!("{value} has the wrong type; expected {self}"))
            }
        }
    }

    const fn count(max: u64) -> Self {
        Self::Integer {
            max,
            unit: "",
            nullable: false,
        }
    }

    const fn ms(max: u64) -> Self {
        Self::Integer {
            max,
            unit: "ms",
            nullable: false,
        }
    }

    const fn or_null(self) -> Self {
        match self {
            Self::Integer { max, unit, .. } => Self::Integer {
                max,
                unit,
                nullable: true,
            },
            Self::Bool | Self::Choice(_) => self,
        }
    }
}

/// The range, as error messages and documents state it.
impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Integer { max, nullable, .. } => {
                let or_null = if *nullable { " or null" } else { "" };
                write!(f, "an integer from 0 to {max}{or_null}")
            }
            Self::Choice(names) => {
                for (at, name) in names.iter().enumerate() {
                    let before = if at == 0 { "" } else { " or " };
                    write!(f, "{before}\"{name}\"")?;
                }
                Ok(())
            }
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
    /// Why [`RetrySettings::recommended`] has its value; empty where it has the default.
    pub reason: &'static str,
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

/// A row of the table. Values are checked against the kind before they come to `set`, so that they always
/// are of the field's type.
macro_rules! setting {
    ($key:literal, $($field:ident).+ $([$at:literal] . $own:ident)?, $kind:expr, $meaning:literal, $reason:literal) => {
        Setting {
            key: $key,
            kind: $kind,
            meaning: $meaning,
            reason: $reason,
            get: |settings| settings.$($field).+ $([$at].$own)?.into(),
            set: |settings, value| {
                if let Some(value) = Field::of(value) {
                    settings.$($field).+ $([$at].$own)? = value;
                }
            },
        }
    };
}

/// A day: the longest of the delays that are set by hand (SE1).
const DAY_MS: u64 = 24 * HOUR_MS;
/// A year: the longest of the waits that a server can ask for.
const YEAR_MS: u64 = 366 * DAY_MS;
const RETRIES: SettingKind = SettingKind::count(1000);
const DELAY: SettingKind = SettingKind::ms(DAY_MS);

/// Every setting: the key tree, the ranges, the meaning (SE1), and why the recommended value is what it is.
pub const SETTINGS: &[Setting] = &[
    setting!(
        "enabled",
        enabled,
        SettingKind::Bool,
        "Whether failures are retried at all.",
        ""
    ),
    setting!(
        "maxRetries",
        max_retries,
        RETRIES,
        "Retries per chain; 0 reports a failure without retrying it.",
        "With 1 s before the first and 30 s at most, six reach past the minute that throttles last."
    ),
    setting!(
        "baseDelayMs",
        base_delay_ms,
        DELAY,
        "The first delay; each further attempt doubles it.",
        "Most overloads pass within a second or two."
    ),
    setting!(
        "maxTotalRetries",
        max_total_retries,
        SettingKind::count(100_000).or_null(),
        "Retries per prompt, which no success, credential or chain resets.",
        "A prompt whose calls fail again and again stops before it costs real money."
    ),
    setting!(
        "maxElapsedMs.chain",
        max_chain_elapsed_ms,
        SettingKind::ms(YEAR_MS).or_null(),
        "How long after its first failure a chain may still retry; a wait past it is refused up front.",
        "Ten minutes is as long as somebody who watches has patience for one call."
    ),
    setting!(
        "maxElapsedMs.prompt",
        max_prompt_elapsed_ms,
        SettingKind::ms(YEAR_MS).or_null(),
        "How long after its start a prompt may still retry; a wait past it is refused up front.",
        "A run without anybody watching ends within the hour."
    ),
    setting!(
        "delay.maxBackoffMs",
        max_backoff_ms,
        DELAY.or_null(),
        "The cap of the own ladder.",
        "Longer steps find a recovered server later and save next to no calls."
    ),
    setting!(
        "delay.jitter",
        jitter,
        SettingKind::Bool,
        "Whether delays are spread: the own ladder to 75–100 %, a server's delay to 100–120 %.",
        "Agents that failed together do not come back together."
    ),
    setting!(
        "delay.serverDelay",
        server_delay,
        SettingKind::Choice(&["ignore", "honour"]),
        "Whether a wait is at least as long as the server asked.",
        "Coming back early is refused again, and often punished."
    ),
    setting!(
        "delay.maxServerDelayMs",
        max_server_delay_ms,
        SettingKind::ms(YEAR_MS).or_null(),
        "A longer server's delay ends the chain at once instead of being waited out or cut short.",
        "Beyond five minutes somebody should decide."
    ),
    setting!(
        "delay.waitForReset",
        wait_for_reset,
        SettingKind::Bool,
        "Whether a server's delay above the maximum is waited out after all.",
        ""
    ),
    setting!(
        "delay.maxResetWaitMs",
        max_reset_wait_ms,
        SettingKind::ms(YEAR_MS),
        "The longest such wait.",
        ""
    ),
    setting!(
        "delay.resetMarginMs",
        reset_margin_ms,
        DELAY,
        "What such a wait lasts longer, since clocks differ.",
        ""
    ),
    setting!(
        "delay.minTransportDelayMs",
        min_transport_delay_ms,
        DELAY,
        "The shortest wait after a failure of the network, up to the cap of the ladder.",
        "A dead network must not be asked in a tight loop."
    ),
    setting!(
        "classes.overloaded.maxRetries",
        classes[0].max_retries,
        RETRIES.or_null(),
        "Retries per chain for this class.",
        "A model at capacity comes back, and asking is cheap."
    ),
    setting!(
        "classes.overloaded.baseDelayMs",
        classes[0].base_delay_ms,
        DELAY.or_null(),
        "The first delay for this class.",
        ""
    ),
    setting!(
        "classes.overloaded.maxBackoffMs",
        classes[0].max_backoff_ms,
        DELAY.or_null(),
        "The cap of the ladder for this class.",
        ""
    ),
    setting!(
        "classes.rate_limit.maxRetries",
        classes[1].max_retries,
        RETRIES.or_null(),
        "Retries per chain for this class.",
        ""
    ),
    setting!(
        "classes.rate_limit.baseDelayMs",
        classes[1].base_delay_ms,
        DELAY.or_null(),
        "The first delay for this class.",
        ""
    ),
    setting!(
        "classes.rate_limit.maxBackoffMs",
        classes[1].max_backoff_ms,
        DELAY.or_null(),
        "The cap of the ladder for this class.",
        ""
    ),
    setting!(
        "classes.server_error.maxRetries",
        classes[2].max_retries,
        RETRIES.or_null(),
        "Retries per chain for this class.",
        "A server that fails three times in a row at this request will fail again."
    ),
    setting!(
        "classes.server_error.baseDelayMs",
        classes[2].base_delay_ms,
        DELAY.or_null(),
        "The first delay for this class.",
        ""
    ),
    setting!(
        "classes.server_error.maxBackoffMs",
        classes[2].max_backoff_ms,
        DELAY.or_null(),
        "The cap of the ladder for this class.",
        ""
    ),
    setting!(
        "classes.network.maxRetries",
        classes[3].max_retries,
        RETRIES.or_null(),
        "Retries per chain for this class.",
        ""
    ),
    setting!(
        "classes.network.baseDelayMs",
        classes[3].base_delay_ms,
        DELAY.or_null(),
        "The first delay for this class.",
        ""
    ),
    setting!(
        "classes.network.maxBackoffMs",
        classes[3].max_backoff_ms,
        DELAY.or_null(),
        "The cap of the ladder for this class.",
        ""
    ),
    setting!(
        "classes.usage_limit.maxRetries",
        classes[4].max_retries,
        RETRIES.or_null(),
        "Retries per chain for this class.",
        ""
    ),
    setting!(
        "classes.usage_limit.baseDelayMs",
        classes[4].base_delay_ms,
        DELAY.or_null(),
        "The first delay for this class.",
        ""
    ),
    setting!(
        "classes.usage_limit.maxBackoffMs",
        classes[4].max_backoff_ms,
        DELAY.or_null(),
        "The cap of the ladder for this class.",
        ""
    ),
    setting!(
        "events",
        events,
        SettingKind::Choice(&["documented", "extended"]),
        "Which fields events have on the wire.",
        ""
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

    /// Every value of [`RetrySettings::recommended`].
    #[must_use]
    pub fn recommended() -> Self {
        let settings = RetrySettings::recommended();
        Self {
            values: SETTINGS
                .iter()
                .map(|setting| setting.value_in(&settings))
                .enumerate()
                .collect(),
        }
    }

    /// Whether it names the setting with this key.
    #[must_use]
    pub fn names(&self, key: &str) -> bool {
        self.values
            .iter()
            .any(|&(index, _)| SETTINGS[index].key == key)
    }

    /// Whether it names no setting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Takes over the values that `later` names and keeps the rest.
    pub fn merge(&mut self, later: &Self) {
        self.values
            .retain(|(index, _)| later.values.iter().all(|(other, _)| other != index));
        self.values.extend_from_slice(&later.values);
    }

    fn put(&mut self, key: &str, value: SettingValue) -> Result<(), SettingsError> {
        let Some(index) = index_of(key) else {
            return Err(SettingsError::unknown_key(key));
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

fn index_of(key: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.key == key)
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

    /// Any setting by its key in [`SETTINGS`].
    ///
    /// ```
    /// # use retry_machine::{RetrySettings, ServerDelay};
    /// let settings = RetrySettings::builder()
    ///     .set("delay.serverDelay", ServerDelay::Honour)
    ///     .set("delay.maxServerDelayMs", 300_000_u64)
    ///     .set("classes.overloaded.maxRetries", 8_u32)
    ///     .build();
    /// assert_eq!(settings.unwrap().max_server_delay_ms(), Some(300_000));
    /// ```
    pub fn set(self, key: &'static str, value: impl Into<SettingValue>) -> Self {
        self.with(key, value.into())
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
    /// The key is not in the table; its group's keys are.
    fn unknown_key(key: &str) -> Self {
        let (group, name) = key
            .rsplit_once('.')
            .map_or(("", key), |(group, name)| (group, name));
        let mut known: Vec<&str> = SETTINGS
            .iter()
            .filter_map(|setting| child(group, setting.key))
            .collect();
        known.dedup();
        let hint = match nearest(name, known.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
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

/// The name below `group` on the way to `key`; None if `key` is not in the group.
fn child<'k>(group: &str, key: &'k str) -> Option<&'k str> {
    let rest = if group.is_empty() {
        key
    } else {
        key.strip_prefix(group)?.strip_prefix('.')?
    };
    rest.split('.').next()
}

/// The known name that `name` was probably meant to be, if one is close.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| {
            let likeness = strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase());
            (candidate, likeness)
        })
        .filter(|&(_, likeness)| likeness >= 0.8)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(candidate, _)| candidate)
}

/// The whole tree, as the group `retry` of a settings file, without what is unset.
impl Serialize for RetrySettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let set = |index: usize| {
            Some(SETTINGS[index].value_in(self)).filter(|value| *value != SettingValue::Unset)
        };
        Group(&set, String::new()).serialize(serializer)
    }
}

/// The values named, as the bare group that it is read from; what is unset by it is `null`.
impl Serialize for SettingsPatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = |index: usize| {
            self.values
                .iter()
                .find(|(at, _)| *at == index)
                .map(|(_, value)| *value)
        };
        Group(&named, String::new()).serialize(serializer)
    }
}

/// The part of the tree below a group, of those settings (by their index) that have a value.
struct Group<'s>(&'s dyn Fn(usize) -> Option<SettingValue>, String);

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value, group) = self;
        let mut map = serializer.serialize_map(None)?;
        let mut last = "";
        for (index, setting) in SETTINGS.iter().enumerate() {
            let Some(name) = child(group, setting.key).filter(|name| *name != last) else {
                continue;
            };
            last = name;
            let path = if group.is_empty() {
                name.to_owned()
            } else {
                format!("{group}.{name}")
            };
            if path == setting.key {
                if let Some(value) = value(index) {
                    map.serialize_entry(name, &value)?;
                }
            } else if SETTINGS
                .iter()
                .enumerate()
                .any(|(index, below)| child(&path, below.key).is_some() && value(index).is_some())
            {
                map.serialize_entry(name, &Group(value, path))?;
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
        let mut patch = Self::default();
        deserializer.deserialize_map(Node {
            key: String::new(),
            patch: &mut patch,
        })?;
        Ok(patch)
    }
}

/// A place in the tree of settings: reads a group or a value into the patch.
struct Node<'p> {
    key: String,
    patch: &'p mut SettingsPatch,
}

impl Node<'_> {
    fn put<E: de::Error>(self, value: SettingValue) -> Result<(), E> {
        if index_of(&self.key).is_none() && self.key == "maxElapsedMs" {
            // One number bounds both.
            for scope in ["maxElapsedMs.chain", "maxElapsedMs.prompt"] {
                self.patch.put(scope, value).map_err(E::custom)?;
            }
            return Ok(());
        }
        if index_of(&self.key).is_none() {
            return Err(self.refuse(value));
        }
        self.patch.put(&self.key, value).map_err(E::custom)
    }

    fn refuse<E: de::Error>(&self, what: impl fmt::Display) -> E {
        let expected = index_of(&self.key).map_or_else(
            || "an object with settings".to_owned(),
            |index| SETTINGS[index].kind.to_string(),
        );
        let key = if self.key.is_empty() {
            "(the group)"
        } else {
            &self.key
        };
        E::custom(SettingsError::invalid(
            key,
            &format!("{what} is not right; expected {expected}"),
        ))
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match index_of(&self.key) {
            Some(index) => fmt::Display::fmt(&SETTINGS[index].kind, f),
            None => f.write_str("an object with settings of the group `retry`"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if index_of(&self.key).is_some() {
            return Err(self.refuse("an object"));
        }
        while let Some(name) = map.next_key::<String>()? {
            let key = if self.key.is_empty() {
                name
            } else {
                format!("{}.{name}", self.key)
            };
            let known = SETTINGS
                .iter()
                .any(|setting| setting.key == key || child(&key, setting.key).is_some());
            if !known {
                return Err(de::Error::custom(SettingsError::unknown_key(&key)));
            }
            map.next_value_seed(Node {
                key,
                patch: self.patch,
            })?;
        }
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.put(SettingValue::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.put(SettingValue::Integer(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(self.refuse(value)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        Err(self.refuse(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        match index_of(&self.key).map(|index| SETTINGS[index].kind) {
            Some(SettingKind::Choice(names)) => match names.iter().find(|name| **name == value) {
                Some(name) => self.put(SettingValue::Choice(name)),
                None => Err(self.refuse(format_args!("{value:?}"))),
            },
            Some(SettingKind::Bool) if value == "on" || value == "off" => {
                self.put(SettingValue::Bool(value == "on"))
            }
            Some(SettingKind::Bool | SettingKind::Integer { .. }) | None => {
                Err(self.refuse(format_args!("{value:?}")))
            }
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        match index_of(&self.key).map(|index| SETTINGS[index].kind) {
            Some(SettingKind::Integer { nullable: true, .. }) => self.put(SettingValue::Unset),
            None if self.key == "maxElapsedMs" => self.put(SettingValue::Unset),
            _ => Err(self.refuse("null")),
        }
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.refuse("a list"))
    }
}
